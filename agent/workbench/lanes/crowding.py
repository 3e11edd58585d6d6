"""Check whether concurrent trials may hold more memory than there is."""

from __future__ import annotations


def crowding(lanes: int, trial_gib: float | None, total_gib: float, reserve_gib: float) -> str:
    """Return a warning about memory; empty if all trials fit.

    A trial's own memory limit does not depend on the number of lanes, since a trial that passed on
    one lane must not fail on several. The reserve belongs to the machine: if it is touched, every
    running trial ends, whichever of them touched it.

    :param trial_gib: memory limit of each trial; None for no limit of its own.
    :param total_gib: memory available to all of them, including the reserve.
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
