"""``python -m trainer SPEC.json [--out DIR]``: one trial, alone and without the agent."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from autoresearch.errors import AutoresearchError, SpecError
from autoresearch.files import read_given, replace_file, writing
from autoresearch.layout import RESULT_FILE
from autoresearch.values import explain
from trainer.schema import TrialSpec


def main(
    spec: Annotated[Path, typer.Argument(help="A TrialSpec, as JSON.")],
    out: Annotated[
        Path | None, typer.Option(help="Where curve.jsonl and result.json go; by default to SPEC.")
    ] = None,
) -> None:
    """Train the config in SPEC, score it, and write result.json."""
    # Torch takes a second; --help does not.
    from trainer.training.child import refused_by_system, run_trial  # noqa: PLC0415

    try:
        trial_dir = spec.parent if out is None else out
        with writing(trial_dir, instead="choose another with --out"):
            trial_dir.mkdir(parents=True, exist_ok=True)
        try:
            asked = TrialSpec.model_validate_json(read_given(spec))
        except OSError as error:
            raise SpecError(
                f"cannot read the spec {spec} ({error.strerror}); give the path of a TrialSpec as "
                "JSON"
            ) from error
        except ValidationError as error:
            raise SpecError(
                f"{spec} is not a trial that can be run: {explain(error)}; correct it and run it "
                "again"
            ) from error
        result = run_trial(asked, trial_dir)
        assert result is not None, "the whole trial ran here"
        try:
            replace_file(trial_dir / RESULT_FILE, result.model_dump_json(indent=2) + "\n")
        except OSError as error:
            raise refused_by_system(error, trial_dir) from error
    except AutoresearchError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(result.model_dump_json(indent=2))


if __name__ == "__main__":
    typer.run(main)
