"""Define the views of a campaign in its history, and create them in SQLite.

The history is an index of the journal, so the views hold nothing that the journal does not.
"""

import json
import sqlite3
import tomllib

from trajectory.history import tables

_ITERATION = "FROM {rows} AS r WHERE r.campaign_id = {id} AND r.kind = 'iteration' ORDER BY r.iter"
_TRIAL = (
    "FROM (SELECT t.*, r.kind, r.iter, r.json, CASE r.kind WHEN 'iteration' THEN "
    "json_extract(r.json, '$.trials[' || t.number || ']') ELSE json_extract(r.json, '$.trial') END "
    "AS record FROM {trials} AS t JOIN {rows} AS r USING (campaign_id, line)) AS t "
    "WHERE t.campaign_id = {id} ORDER BY t.line, t.number"
)
_CONFIG = "FROM {configs} AS c WHERE c.campaign_id = {id} ORDER BY c.position"
_CONFIRMATION = (
    "FROM {rows} AS r, json_each(r.json, '$.found.configs') AS c, json_each(c.value, '$.gains') "
    "AS g WHERE r.campaign_id = {id} AND r.kind = 'confirmed' ORDER BY r.line, c.key, g.key"
)


def _json(source: str, path: str) -> str:
    return f"json_extract({source}, '$.{path}')"


def _objective(name: str) -> str:
    """Return a decision's objective, which earlier rows name ``…_bpb``."""
    present, former = (f"decision.{name}_{ending}" for ending in ("objective", "bpb"))
    return f"coalesce({_json('r.json', present)}, {_json('r.json', former)})"


VIEWS: dict[str, tuple[str, tuple[tuple[str, str, str], ...]]] = {
    "iterations": (
        _ITERATION,
        (
            ("iter", "r.iter", "number of the iteration, from 1"),
            ("at", _json("r.json", "at"), "when it ended, ISO 8601, UTC"),
            ("proposer", _json("r.json", "proposer.kind"), "kind of proposer"),
            ("model", _json("r.json", "proposer.model"), "the language model, if one was asked"),
            ("changes", _json("r.json", "proposal.changes"), "proposed values by knob, JSON"),
            ("reason", _json("r.json", "proposal.reason"), "the proposer's reason"),
            ("rail", _json("r.json", "verdict.rail"), "rail that refused the proposal"),
            ("why", _json("r.json", "verdict.why"), "why it was refused"),
            ("action", "r.action", "keep, discard or none"),
            ("config_hash", "r.config_hash", "the candidate"),
            ("reference_hash", _json("r.json", "decision.reference_hash"), "what it raced against"),
            ("estimate", _objective("estimate"), "the candidate's objective"),
            ("reference", _objective("reference"), "the reference's objective"),
            ("delta", _json("r.json", "decision.delta"), "estimate minus reference; negative wins"),
            ("stderr", _json("r.json", "decision.stderr"), "standard error of delta"),
            ("z", _json("r.json", "decision.z"), "-delta / stderr"),
            ("pairs", _json("r.json", "decision.pairs"), "seeds on which both were measured"),
            ("explanation", _json("r.json", "decision.explanation"), "the judge's sentence"),
            ("wall_s", _json("r.json", "wall_s"), "seconds from proposal to decision"),
            ("energy_wh", _json("r.json", "energy_wh"), "watt-hours"),
        ),
    ),
    "trials": (
        _TRIAL,
        (
            ("trial_id", "t.trial_id", "name of its folder in trials"),
            ("iter", "t.iter", "iteration; empty outside iterations"),
            ("kind", "t.kind", "kind of row: baseline, iteration, confirm, stress, …"),
            ("role", "t.role", "candidate, reference, baseline, …"),
            ("config_hash", "t.config_hash", "the config that was trained"),
            ("seed", "t.seed", "as text, because it may exceed 64 bits"),
            ("status", "t.status", "ok or scored, or how it failed"),
            ("message", _json("t.record", "result.message"), "of a failure"),
            ("objective", "t.objective", "lower is better"),
            ("score", "{sign} * t.objective", "in the campaign's unit and direction"),
            ("steps", _json("t.record", "result.steps"), "optimizer steps"),
            ("params", _json("t.record", "result.params"), "parameters"),
            ("tokens_per_s", _json("t.record", "result.tokens_per_s"), "training speed"),
            ("peak_mem_gib", _json("t.record", "result.peak_mem_gib"), "GiB"),
            ("peak_gpu_mem_gib", _json("t.record", "result.peak_gpu_mem_gib"), "of a command, GiB"),
            ("energy_wh", _json("t.record", "result.energy_wh"), "watt-hours"),
            ("gpu_util_pct", _json("t.record", "result.gpu_util_pct"), "mean utilization"),
            ("train_s", "t.train_s", "seconds of training"),
            ("wall_s", "t.wall_s", "seconds from request to result"),
        ),
    ),
    "configs": (
        _CONFIG,
        (
            ("config_hash", "c.config_hash", "SHA-256 of the config"),
            ("iter", "c.iter", "iteration that first proposed it; 0 is the baseline"),
            ("action", "c.action", "latest decision: keep, discard or none"),
            ("n", "c.n", "seeds measured"),
            ("objective", "c.mean_objective", "mean over those; lower is better"),
            ("score", "{sign} * c.mean_objective", "the mean in the campaign's unit and direction"),
            ("failures", "c.failures", "failed trials"),
            ("train_s", "c.train_s", "seconds of training in all"),
            ("params", "c.params", "parameters"),
        ),
    ),
    "confirmations": (
        _CONFIRMATION,
        (
            ("at", _json("r.json", "at"), "when the confirmation ended"),
            ("config_hash", _json("c.value", "config_hash"), "the finalist"),
            ("iter", _json("c.value", "iter"), "iteration that first proposed it"),
            ("chosen", "c.key = 0", "1: the search's own choice, whose gain is the headline"),
            ("claimed", _json("c.value", "claimed"), "difference that the search claimed"),
            ("text", _json("g.value", "text"), "the text scored"),
            ("seeds", _json("g.value", "seeds"), "fresh seeds"),
            ("delta", _json("g.value", "delta"), "objective minus the baseline's; negative wins"),
            ("lo", _json("g.value", "lo"), "its 95 % interval"),
            ("hi", _json("g.value", "hi"), "its 95 % interval"),
            ("all_lo", _json("g.value", "all_lo"), "interval valid for all finalists at once"),
            ("all_hi", _json("g.value", "all_hi"), "interval valid for all finalists at once"),
        ),
    ),
}
"""The views: what they select from, and each column's name, expression and meaning.

After its columns, ``configs`` has one column for each field of a config, the knobs first."""


def create_views(connection: sqlite3.Connection, campaign_id: str) -> None:
    """Create the views of one campaign, replacing those of the same names."""
    names = {"rows": tables.rows, "trials": tables.trials, "configs": tables.configs}
    given = {name: table.name for name, table in names.items()} | {"id": _quoted(campaign_id)}
    sign, fields = _campaign_facts(connection, campaign_id)
    for name, (source, described) in VIEWS.items():
        columns = [(column, expression) for column, expression, _ in described]
        if name == "configs":
            taken = {column for column, _ in columns}
            columns += ((f"config_{k}" if k in taken else k, path) for k, path in fields.items())
        selected = ", ".join(
            f"{expression.replace('{sign}', sign)} AS " + _quoted(column, '"')
            for column, expression in columns
        )
        connection.execute(f"DROP VIEW IF EXISTS {name}")
        connection.execute(f"CREATE VIEW {name} AS SELECT {selected} {source.format_map(given)}")


def _campaign_facts(connection: sqlite3.Connection, campaign_id: str) -> tuple[str, dict[str, str]]:
    """Return the factor from objective to score, and the expression of each field of a config."""
    row = connection.execute(
        f"SELECT json FROM {tables.rows.name} WHERE campaign_id = ? AND kind = 'campaign'",
        (campaign_id,),
    ).fetchone()
    config = connection.execute(
        f"SELECT config FROM {tables.configs.name} WHERE campaign_id = ? AND position = 0",
        (campaign_id,),
    ).fetchone()
    path = "$."
    first = json.loads(row[0]) if row else {}
    direction = (first.get("measure") or {}).get("direction")
    values = json.loads(config[0]) if config else {}
    if isinstance(values.get("values"), dict):
        values, path = values["values"], "$.values."
    try:
        knobs = list(tomllib.loads(first.get("menu_toml", "")).get("knobs", {}))
    except (tomllib.TOMLDecodeError, AttributeError):  # only in an edited journal
        knobs = []
    ordered = [*(name for name in knobs if name in values), *values]
    fields = {
        name: f"json_extract(c.config, {_quoted(path + json.dumps(name))})" for name in ordered
    }
    return ("-1" if direction == "maximise" else "1"), fields


def _quoted(text: str, mark: str = "'") -> str:
    return mark + text.replace(mark, 2 * mark) + mark
