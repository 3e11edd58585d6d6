"""Define the views of a campaign in its history, and create them in SQLite.

The history is an index of the journal, so the views hold nothing that the journal does not.
"""

import json
import sqlite3
import tomllib

from trajectory.history.tables import rows
from trajectory.rows import CampaignRow

_ITERATION = "FROM {rows} AS r WHERE r.campaign_id = {id} AND r.kind = 'iteration' ORDER BY iter"
_ALL_TRIALS = (
    "SELECT r.line, r.kind, r.json, t.key AS number, t.value AS record, "
    "CASE json_extract(t.value, '$.result.direction') WHEN 'maximise' THEN -1 ELSE 1 END AS sign, "
    "coalesce(json_extract(t.value, '$.result.val_bpb'), json_extract(t.value, '$.result.score')) "
    "AS score FROM {rows} AS r, json_each(coalesce(json_extract(r.json, '$.trials'), "
    "json_array(json_extract(r.json, '$.trial')))) AS t WHERE r.campaign_id = {id} "
    "AND t.type = 'object'"
)
_OF_ITERATION = "CASE t.kind WHEN 'iteration' THEN json_extract(t.json, '$.iter') END"
_TRIAL = f"FROM ({_ALL_TRIALS}) AS t ORDER BY t.line, t.number"
# In a query with min() or max() SQLite takes the other columns from the row of that value.
_CONFIG = (
    "FROM (SELECT json_extract(json, '$.config_hash') AS hash, coalesce(json_extract(json, "
    "'$.iter'), 0) AS iter, json_extract(json, '$.config') AS config, min(line) AS line "
    "FROM {rows} WHERE campaign_id = {id} AND kind IN ('baseline', 'iteration') "
    "AND json_extract(json, '$.config_hash') IS NOT NULL GROUP BY hash) AS c "
    "LEFT JOIN (SELECT json_extract(json, '$.config_hash') AS hash, json_extract(json, "
    "'$.decision.action') AS action, max(line) FROM {rows} WHERE campaign_id = {id} "
    "AND kind = 'iteration' GROUP BY hash) AS d USING (hash) "
    "LEFT JOIN (SELECT hash, sum(n) AS n, avg(score) AS score, avg(sign * score) AS objective, "
    "sum(failures) AS failures, sum(train_s) AS train_s, max(params) AS params FROM (SELECT "
    "json_extract(record, '$.config_hash') AS hash, record -> '$.seed' AS seed, sign, score, "
    "max(score IS NOT NULL) AS n, sum(score IS NULL) AS failures, "
    "sum(json_extract(record, '$.result.train_s')) AS train_s, "
    "json_extract(record, '$.result.params') AS params FROM (" + _ALL_TRIALS + ") "
    "WHERE kind IN ('baseline', 'iteration') GROUP BY hash, seed) GROUP BY hash) AS m USING (hash) "
    "ORDER BY c.line"
)
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
            ("iter", _json("r.json", "iter"), "number of the iteration, from 1"),
            ("at", _json("r.json", "at"), "when it ended, ISO 8601, UTC"),
            ("proposer", _json("r.json", "proposer.kind"), "kind of proposer"),
            ("model", _json("r.json", "proposer.model"), "the language model, if one was asked"),
            ("changes", _json("r.json", "proposal.changes"), "proposed values by knob, JSON"),
            ("reason", _json("r.json", "proposal.reason"), "the proposer's reason"),
            ("rail", _json("r.json", "verdict.rail"), "rail that refused the proposal"),
            ("why", _json("r.json", "verdict.why"), "why it was refused"),
            ("action", _json("r.json", "decision.action"), "keep, discard or none"),
            ("config_hash", _json("r.json", "config_hash"), "the candidate"),
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
            ("trial_id", _json("t.record", "trial_id"), "name of its folder in trials"),
            (
                "iter",
                "CASE t.kind WHEN 'iteration' THEN json_extract(t.json, '$.iter') END",
                "iteration; empty outside iterations",
            ),
            ("kind", "t.kind", "kind of row: baseline, iteration, confirm, stress, …"),
            ("role", _json("t.record", "role"), "candidate, reference, baseline, …"),
            ("config_hash", _json("t.record", "config_hash"), "the config that was trained"),
            ("seed", "t.record -> '$.seed'", "as text, because it may exceed 64 bits"),
            ("status", _json("t.record", "result.status"), "ok or scored, or how it failed"),
            ("message", _json("t.record", "result.message"), "of a failure"),
            ("objective", "t.sign * t.score", "lower is better"),
            ("score", "t.score", "in the campaign's unit and direction"),
            ("steps", _json("t.record", "result.steps"), "optimizer steps"),
            ("params", _json("t.record", "result.params"), "parameters"),
            ("tokens_per_s", _json("t.record", "result.tokens_per_s"), "training speed"),
            ("peak_mem_gib", _json("t.record", "result.peak_mem_gib"), "GiB"),
            ("peak_gpu_mem_gib", _json("t.record", "result.peak_gpu_mem_gib"), "of a command, GiB"),
            ("energy_wh", _json("t.record", "result.energy_wh"), "watt-hours"),
            ("gpu_util_pct", _json("t.record", "result.gpu_util_pct"), "mean utilization"),
            ("train_s", _json("t.record", "result.train_s"), "seconds of training"),
            ("wall_s", _json("t.record", "wall_s"), "seconds from request to result"),
        ),
    ),
    "configs": (
        _CONFIG,
        (
            ("config_hash", "c.hash", "SHA-256 of the config"),
            ("iter", "c.iter", "iteration that first proposed it; 0 is the baseline"),
            ("action", "coalesce(d.action, 'none')", "latest decision: keep, discard or none"),
            ("n", "coalesce(m.n, 0)", "seeds measured"),
            ("objective", "m.objective", "mean over those; lower is better"),
            ("score", "m.score", "the mean in the campaign's unit and direction"),
            ("failures", "coalesce(m.failures, 0)", "failed trials"),
            ("train_s", "coalesce(m.train_s, 0.0)", "seconds of training in all"),
            ("params", "m.params", "parameters"),
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


def create_views(connection: sqlite3.Connection, campaign: CampaignRow | None) -> None:
    """Create the views of one campaign, replacing those of the same names."""
    given = {"rows": rows.name, "id": _quoted(campaign.id if campaign else "")}
    for name, (source, described) in VIEWS.items():
        columns = [(column, expression) for column, expression, _ in described]
        if name == "configs" and campaign is not None:
            taken = {column for column, _ in columns}
            fields = _fields(connection, campaign)
            columns += [(f"config_{k}" if k in taken else k, path) for k, path in fields.items()]
        selected = ", ".join(
            f"{expression} AS " + _quoted(column, '"') for column, expression in columns
        )
        connection.execute(f"DROP VIEW IF EXISTS {name}")
        connection.execute(f"CREATE VIEW {name} AS SELECT {selected} {source.format_map(given)}")


def _fields(connection: sqlite3.Connection, campaign: CampaignRow) -> dict[str, str]:
    """Return the expression of each field of a config, the knobs first."""
    row = connection.execute(
        f"SELECT json_extract(json, '$.config') FROM {rows.name} WHERE campaign_id = ? "
        "AND kind = 'baseline' LIMIT 1",
        (campaign.id,),
    ).fetchone()
    values, path = json.loads(row[0]) if row else {}, "$."
    if isinstance(values.get("values"), dict):
        values, path = values["values"], "$.values."
    try:
        knobs = list(tomllib.loads(campaign.menu_toml).get("knobs", {}))
    except (tomllib.TOMLDecodeError, AttributeError):  # only in an edited journal
        knobs = []
    ordered = [*(name for name in knobs if name in values), *values]
    return {name: f"json_extract(c.config, {_quoted(path + json.dumps(name))})" for name in ordered}


def _quoted(text: str, mark: str = "'") -> str:
    return mark + text.replace(mark, 2 * mark) + mark
