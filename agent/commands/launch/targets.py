"""``autoresearch menu from-target`` and its like: what the cloud will train, and its proxies."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from agent.commands.options import takes
from agent.commands.tables import plain_table
from agent.menu.files import parse_menu
from autoresearch.errors import TargetError
from autoresearch.files import replace_file, writing
from autoresearch.options import AsOption
from autoresearch.values import Frozen
from funnel.target.architecture import TargetArchitecture, load_target, shipped_targets
from funnel.target.menu_text import longest_seq_len, menu_text
from funnel.target.proxy_family import CPU, GPU, ProxyFamily
from funnel.target.proxy_search import find_proxies
from funnel.target.sizes import parse_size, size_text

TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="A shipped target's name or a TOML file.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def list_targets(as_json: AsJson = False) -> None:
    """List the target architectures that come with the product."""
    targets = [load_target(name) for name in shipped_targets()]
    if as_json:
        typer.echo(json.dumps([_fields(target) for target in targets], indent=2))
        return
    table = plain_table("target", "parameters", "token budget", "about")
    for target in targets:
        table.add_row(
            target.name,
            size_text(target.total_params),
            size_text(target.tokens),
            Text(target.doc),
        )
    Console().print(table)


def show_target(target: TargetArgument, as_json: AsJson = False) -> None:
    """Show a target's shape, its parameters by arithmetic and its token budget."""
    chosen = load_target(target)
    if as_json:
        typer.echo(json.dumps(_fields(chosen), indent=2))
        return
    console = Console()
    console.print(Text.assemble((chosen.name, "bold"), " ", chosen.doc))
    table = plain_table("field", "value")
    for name, value in _fields(chosen).items():
        if name not in {"name", "doc"}:
            grouped = isinstance(value, int) and not isinstance(value, bool) and value >= 10_000
            table.add_row(name, f"{value:,}" if grouped else json.dumps(value))
    console.print(table)


class ProxiesAsked(Frozen):
    """Which proxies of a target a person wants."""

    params: str | None = Field(
        None,
        description="Parameters of the proxy to begin with, such as 200M (the default; with "
        "--tiny, 2M).",
    )
    tiny: Annotated[bool, AsOption("--tiny")] = Field(
        False,
        description="Proxies that two CPU cores train in seconds: heads may become narrower, and "
        "--params is a wish.",
    )
    tokenizer: str | None = Field(
        None,
        description="bytes, bpe:VOCAB or file:PATH; its vocabulary counts among the parameters. "
        "Default: bpe:50257; with --tiny, bpe:1024.",
    )
    fp8: Annotated[bool, AsOption("--fp8")] = Field(
        False, description="Let proposals choose fp8, on GPUs that have it."
    )


@takes(ProxiesAsked)
def from_target(
    target: TargetArgument,
    *,
    asked: ProxiesAsked,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write. Default: standard output."),
        AsOption(before="tiny"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a menu of proxies that keep a target's shape at 50 to 500 million parameters.

    A proxy has the target's head_dim, heads to a KV head, d_ff / d_model, n_layer / d_model (to
    10 %), activation, norm, positions and tying. Its width is a knob; everything else of the shape
    is tied to it by formulas, so that no proposal can leave the shape.
    """
    scale = CPU if asked.tiny else GPU
    params = parse_size(asked.params) if asked.params else scale.default_params
    family = find_proxies(
        load_target(target),
        scale=scale,
        params=params,
        tokenizer=asked.tokenizer or scale.tokenizer,
        seq_len=longest_seq_len(scale),
    )
    text = menu_text(family, fp8=asked.fp8)
    parse_menu(text, f"for {family.target.name}")
    if out is None and not as_json:
        typer.echo(text, nl=False)
        return
    if out is not None:
        _write(out, text, replace=force)
    if as_json:
        typer.echo(json.dumps(_report(family, out, text), indent=2))
    else:
        assert out is not None
        _print(family, params, out, Console())


def _report(family: ProxyFamily, out: Path | None, text: str) -> dict[str, Any]:
    return {
        "target": family.target.name,
        "tokenizer": family.tokenizer,
        "vocab_size": family.vocab_size,
        "default_d_model": family.default.d_model,
        "proxies": [
            {
                "d_model": proxy.d_model,
                "n_layer": proxy.n_layer,
                "n_head": proxy.n_head,
                "n_kv_head": proxy.kv_heads,
                "d_ff": proxy.d_ff,
                "params": family.params(proxy),
            }
            for proxy in family.proxies
        ],
        "given_up": list(family.given_up()),
        "menu": str(out) if out else None,
        "toml": text,
    }


def _print(family: ProxyFamily, asked: int, out: Path, console: Console) -> None:
    table = plain_table("d_model", "n_layer", "n_head", "KV heads", "d_ff", "parameters", "")
    for proxy in family.proxies:
        table.add_row(
            *(str(n) for n in (proxy.d_model, proxy.n_layer, proxy.n_head, proxy.kv_heads)),
            str(proxy.d_ff),
            size_text(family.params(proxy)),
            "default" if proxy == family.default else "",
        )
    console.print(table)
    notes = [f"parameters count the {family.vocab_size:,} ids of {family.tokenizer}"]
    if asked != family.asked_params:
        notes.append(f"{size_text(asked)} was asked for, which is not a size for a CPU")
    notes += [f"not kept: {clause}" for clause in family.given_up()]
    command = shlex.join(["autoresearch", "loop", "--menu", str(out)])
    for line in (*notes, f"wrote {out}; search with:\n  {command}"):
        console.print(Text(line), soft_wrap=True)


def _write(path: Path, text: str, *, replace: bool) -> None:
    """The whole file or nothing.

    :raises TargetError: where another file is there.
    """
    with writing(path, instead="name another file"):
        if path.exists() and not replace and path.read_bytes() != text.encode():
            raise TargetError(
                f"{path} is there already and holds something else; name another file or add "
                "--force"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)


def _fields(target: TargetArchitecture) -> dict[str, Any]:
    count = target.parameter_count
    return target.model_dump(mode="json") | {
        "d_ff": target.d_ff,
        "total_params": count.total,
        "params_without_embeddings": count.blocks,
        "tokens": target.tokens,
    }
