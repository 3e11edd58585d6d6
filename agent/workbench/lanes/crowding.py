"""Whether trials side by side may hold more memory than there is."""

from __future__ import annotations


def crowding(lanes: int, trial_gib: float | None, total_gib: float, reserve_gib: float) -> str:
    """What a person should know of it; empty where there is nothing to know.

    A trial's own limit is what a person says a trial may have, on however many lanes: another one
    on more lanes would end what passed on one. The reserve is the machine's, and every trial is
    ended that runs while it is touched, whichever of them touched it.

    :param trial_gib: what each may hold; None: no limit of its own.
    :param total_gib: what all of them can have, with the reserve.
    """
    if lanes == 1 or trial_gib is None or lanes * trial_gib + reserve_gib <= total_gib:
        return ""
    most_gib = (total_gib - reserve_gib) / lanes
    together = (
        f"{lanes} trials of {trial_gib:g} GiB and a reserve of {reserve_gib:g} GiB are more than "
        f"the {total_gib:.1f} GiB here; one trial may then end all that run beside it"
    )
    if most_gib <= 0:
        return f"{together}; ask for fewer lanes"
    return f"{together}; ask for --trial-memory-gib {most_gib:.1f} or less, or for fewer lanes"
