"""``autoresearch menu from-target`` and related commands: cloud targets and their proxies."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic import Field
from rich.console import Console, Group
from rich.text import Text

from agent.commands.options import JsonOption, takes
from agent.menu.files import parse_menu
from agent.session.console import answer, plain_table, print_lines
from autoresearch.errors import TargetError
from autoresearch.files import write_new
from autoresearch.options import AsOption
from autoresearch.values import Frozen
from autoresearch.words import did_you_mean, json_text
from funnel.targets.architecture import TargetArchitecture, load_target, shipped_targets
from funnel.targets.proxies import CPU, GPU, find_proxy
from funnel.targets.ratio_family import RatioFamily
from funnel.targets.ratio_menu import ratio_menu_text
from funnel.targets.ratios import RATIOS, Equal, RatioName
from funnel.targets.shape import parse_size, size_text

TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="A shipped target's name or a TOML file.")
]


def targets(
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="A shipped target's name or a TOML file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the target architectures, or show one: shape, parameters and token budget."""
    names = shipped_targets() if target is None else [target]
    shown = [load_target(name) for name in names]
    fields = [
        one.model_dump(mode="json")
        | {
            "d_ff": one.d_ff,
            "total_params": one.total_params,
            "params_without_embeddings": one.parameter_count.blocks,
            "tokens": one.tokens,
        }
        for one in shown
    ]
    if target is None:
        columns = ("target", "parameters", "token budget", "about")
        rows = ((t.name, size_text(t.total_params), size_text(t.tokens), t.doc) for t in shown)
        answer(fields, [plain_table(*columns, rows=rows)], as_json=as_json, indent=2)
        return
    values = (
        (name, f"{value:,}" if type(value) is int and value >= 10_000 else json.dumps(value))
        for name, value in fields[0].items()
        if name not in {"name", "doc"}
    )
    title = Group(Text.assemble((shown[0].name, "bold"), " ", shown[0].doc))
    table = plain_table("field", "value", rows=values)
    answer(fields[0], [title, table], as_json=as_json, indent=2)


class ProxiesAsked(Frozen):
    """Options of a target's proxies."""

    params: str | None = Field(
        None,
        description="Parameters of the first proxy, such as 200M. Default: 200M; with --tiny, 2M.",
    )
    tiny: Annotated[bool, AsOption("--tiny")] = Field(
        False,
        description="Make proxies that two CPU cores train in seconds; heads may become narrower.",
    )
    equal: Equal = Field(
        "params", description="Quantity that is equal for all shapes: params or flops."
    )
    tokenizer: str | None = Field(
        None,
        description="bytes, bpe:VOCAB or file:PATH. Default: bpe:50257; with --tiny, bpe:1024.",
    )


@takes(ProxiesAsked)
def from_target(
    target: TargetArgument,
    *,
    asked: ProxiesAsked,
    fix: Annotated[
        list[str] | None,
        typer.Option(metavar="RATIO", help="Keep the target's value of this ratio. Repeatable."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write. Default: standard output."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a menu that searches a target's ratios on proxies of one size.

    Every config has the same parameters without embeddings, or the same FLOPs a token. The baseline
    has the target's own ratios.
    """
    scale = CPU if asked.tiny else GPU
    params = parse_size(asked.params) if asked.params else scale.default_params
    chosen = _fixing(load_target(target), fix or [])
    tokenizer = asked.tokenizer or scale.tokenizer
    base = find_proxy(chosen, scale=scale, params=params, tokenizer=tokenizer)
    family = RatioFamily(base, asked.equal)
    text = ratio_menu_text(family)
    parse_menu(text, f"for {chosen.name}")
    if out is not None:
        write_new(out, text, error=TargetError)
    if as_json:
        report = _report(family, text)
        typer.echo(json.dumps(report | {"menu": str(out) if out else None}, indent=2))
    elif out is None:
        typer.echo(text, nl=False)
    else:
        print_lines(Console(), _written(out, family, params))


def _written(out: Path, family: RatioFamily, params: int) -> Iterator[str | Text]:
    base, size = family.base, family.size
    menu = parse_menu(ratio_menu_text(family), "for the table")
    for name in family.free:
        knob, ratio = menu.knobs[RATIOS[name].knob], RATIOS[name]
        said = f"  {knob.domain}, the target's {json_text(knob.default)}; transfers: "
        yield Text.assemble((f"{name:<15}", "bold"), f"{said}{ratio.why} ({ratio.source})")
    held = {
        "params": f"{size_text(size.amount)} weights in the blocks",
        "flops": f"{size_text(6 * size.amount)} FLOPs a token",
    }[size.equal]
    yield (
        f"every config has {held}; the baseline has {size_text(family.params)} parameters, "
        f"counting the {base.vocab_size:,} ids of {base.tokenizer}"
    )
    if params != base.asked_params:
        yield f"{size_text(params)} was asked for, which is not a size for a CPU"
    command = shlex.join(["autoresearch", "loop", "--menu", str(out)])
    yield f"wrote {out}; search with:\n  {command}"


def _fixing(target: TargetArchitecture, names: list[str]) -> TargetArchitecture:
    """Return the target with these ratios fixed besides its own.

    :raises TargetError: if a name is not a ratio.
    """
    for name in names:
        if name not in get_args(RatioName):
            raise TargetError(f"{json_text(name)} is not a ratio{did_you_mean(name, RATIOS)}")
    fixed = [name for name in RATIOS if name in {*target.fixed, *names}]
    return target.model_copy(update={"fixed": tuple(fixed)})


def _report(family: RatioFamily, text: str) -> dict[str, Any]:
    return {
        "target": family.target.name,
        "tokenizer": family.base.tokenizer,
        "vocab_size": family.base.vocab_size,
        "equal": family.size.equal,
        "amount": family.size.amount * (6 if family.size.equal == "flops" else 1),
        "params": family.params,
        "ratios": [
            {"name": name, "knob": ratio.knob, "why": ratio.why, "source": ratio.source}
            for name, ratio in ((name, RATIOS[name]) for name in family.free)
        ],
        "fixed": list(family.target.fixed),
        "toml": text,
    }
