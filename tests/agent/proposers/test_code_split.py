import json
from collections import Counter
from dataclasses import replace

import pytest

from agent.menu.rails import Rails
from agent.menu.replies import ParsedReply, read_code_reply
from agent.menu.reply_objects import ReplyError
from agent.proposers.base import Offer, ProposerError, SearchView
from agent.proposers.code import CodeSplit, LibraryProposer
from agent.proposers.llm.prompt import Prompter
from agent.proposers.sampler import SamplerProposer
from tests.support.code_menus import code_menu
from tests.support.endpoints import model_at
from tests.support.memories import fresh_memory, remember
from tests.support.openai_server import OpenAIServer, says
from tests.support.rows import iteration_row
from trainer.schema import Budget
from trajectory.evidence import Evidence
from trajectory.proposals import Attempt, ProposerRecord, Verdict
from trajectory.rows import Decision
from trajectory.track_record import CODE, NUMBERS, Credit, earned

MENU = code_menu("activation", "update", "gate")
RAILS = Rails(MENU, budget=Budget())
NUMBER = Offer(ParsedReply({"lr": 0.004}, "r"), ProposerRecord(kind="sampler"))
KEY = "code.activation"
GOOD = "def activation(x):\n    return F.relu(x) ** 3"
STEALS = "import os\ndef activation(x):\n    return x"
MIXES = "def activation(x):\n    return x - x.mean(0, keepdim=True)"


class Numbers:
    def propose(self, view: SearchView) -> Offer:
        return NUMBER


class Writer:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[str] = []

    def write(self, view: SearchView, name: str) -> Offer:
        self.asked.append(name)
        if self.error:
            raise self.error
        changes = {KEY: GOOD}
        return Offer(ParsedReply(changes, ""), ProposerRecord(kind="llm"))


def turns(writer: Writer | None = None) -> CodeSplit:
    write = writer.write if writer is not None else None
    return CodeSplit(Numbers(), LibraryProposer(RAILS, Numbers()), write)


def memory_that_earned(code: float, numbers: float) -> SearchView:
    view = fresh_memory(MENU)
    earnings = {CODE: Credit(), NUMBERS: Credit()}
    for _ in range(20):
        earnings = {CODE: earnings[CODE].after(code), NUMBERS: earnings[NUMBERS].after(numbers)}
    view.evidence.earnings = earnings
    return view


def kinds(proposer: CodeSplit, view: SearchView, count: int = 60) -> Counter[str]:
    offers = [proposer.propose(replace(view, iter=n)) for n in range(1, count + 1)]
    assert all((one.record.arm == CODE) == (one.record.kind != "sampler") for one in offers)
    return Counter(one.record.kind for one in offers)


def test_turns_follow_what_has_earned_more() -> None:
    for view, least, most in (
        (fresh_memory(MENU), 15, 45),
        (memory_that_earned(1.5, 0.0), 50, 60),
        (memory_that_earned(0.0, 1.5), 0, 10),
        (fresh_memory(), 0, 0),  # without code knobs
    ):
        assert least <= kinds(turns(), view)["library"] <= most


def test_a_model_writes_at_least_half_of_the_code() -> None:
    writer = Writer()
    found = kinds(turns(writer), memory_that_earned(1.5, 0.0), 60)
    assert 0.35 < found["llm"] / (found["llm"] + found["library"]) < 0.65
    assert {*writer.asked} == {KEY, "code.update"}  # no gate is called in the reference


def test_the_library_stands_in_for_a_model_that_fails() -> None:
    failed = Attempt(raw="?", verdict=Verdict(allowed=False, rail="code", why="no"))
    writer = Writer(ProposerError("no usable reply", (failed,)))
    view = memory_that_earned(1.5, 0.0)
    offers = [turns(writer).propose(replace(view, iter=n)) for n in range(1, 30)]
    stood_in = [one for one in offers if one.record.fallback]
    assert stood_in
    assert {one.record.kind for one in stood_in} == {"library"}
    assert all(one.record.attempts == (failed,) for one in stood_in)


def row_of(arm: str | None, action: str, z: float | None) -> object:
    record = ProposerRecord.model_validate({"kind": "library" if arm else "sampler", "arm": arm})
    decision = Decision.model_validate({"action": action, "z": z})
    return iteration_row(1, None, proposer=record, decision=decision)


def test_a_kept_change_earns_its_standard_errors() -> None:
    known: dict[str, Credit] = {}
    for arm, action, z in (
        (None, "keep", 3.0),  # before any code: not counted
        ("code", "discard", 1.0),
        ("code", "keep", 1.5),
        (None, "keep", 9.0),
        (None, "none", None),
    ):
        known = earned(known, row_of(arm, action, z))  # type: ignore[arg-type]
    assert known[CODE] == Credit().after(0).after(1.5)
    assert known[NUMBERS] == Credit().after(2.0).after(0)


def test_refused_code_is_remembered_with_its_reason() -> None:
    verdict = Verdict(allowed=False, rail="code", why="code.activation: import is not allowed")
    attempt = Attempt(raw='{"code": "import os"}', verdict=verdict)
    record = ProposerRecord(kind="library", arm="code", attempts=(attempt,), fallback="failed")
    rows = [iteration_row(n, None, proposer=record) for n in range(1, 20)]
    row = iteration_row(20, None, changes={KEY: "return y"}, verdict=verdict)
    said = [one.said for one in Evidence([*rows, row]).refused_code]
    assert said == ['{"code": "import os"}'] * 11 + ["return y"]


def reply(code: str) -> str:
    return json.dumps({"reason": "cubes", "code": code})


def test_bad_replies_are_refused_with_a_reason_until_a_good_one() -> None:
    fenced = f"It cubes.\n```python\n{GOOD}\n```"
    with OpenAIServer([says(reply(STEALS)), says(reply(MIXES)), says(fenced)]) as server:
        offer = model_at(server, RAILS).write(fresh_memory(MENU), KEY)
        chats = server.chats
    assert offer.reply.changes == {KEY: GOOD + "\n"}
    verdicts = [one.verdict for one in offer.record.attempts]
    assert [verdict and verdict.rail for verdict in verdicts] == ["code", "code", None]
    last = chats[-1]["messages"]
    assert [one["role"] for one in last] == ["user", *["assistant", "user"] * 2]
    assert STEALS.splitlines()[0] in last[1]["content"]
    assert verdicts[1] is not None
    assert verdicts[1].why in last[4]["content"]


def test_the_prompt_shows_the_contract_the_present_function_and_every_variant() -> None:
    view = fresh_memory(MENU)
    for score, code in ((3.7, GOOD), (4.4, "return torch.sin(x)"), (None, "return x")):
        view = remember(view, {KEY: code}, score)
    why = "code.activation: x.shape counts sequences and tokens; use .shape[-1]"
    refused = iteration_row(
        9, None, changes={KEY: "return x / x.shape[0]"},
        verdict=Verdict(allowed=False, rail="code", why=why),
    )  # fmt: skip
    view.evidence.add(refused)
    (message,) = Prompter(Budget()).code_prompt(view, KEY).messages
    text = message.content
    parts = (
        MENU.code_knobs[KEY].signature, "return F.gelu(x)", "-", "F.relu(x) ** 3", "torch.sin(x)",
        "nan at step 7", "return x / x.shape[0]",
    )  # fmt: skip
    places = [text.find(part) for part in parts]
    assert min(places) >= 0
    assert places[3:5] == sorted(places[3:5])
    assert Prompter(Budget(), tokens=900).code_prompt(view, KEY).tokens <= 900
    with pytest.raises(ProposerError):
        Prompter(Budget(), tokens=200).code_prompt(view, KEY)


@pytest.mark.parametrize(
    "raw", ["", '{"code": 3}', '{"code": " "}', '{"code": "x", "more": 1}', "no code", "[]"]
)
def test_a_reply_without_one_function_is_refused(raw: str) -> None:
    with pytest.raises(ReplyError):
        read_code_reply(raw)


def test_the_sampler_goes_on_from_a_reference_with_code_of_others() -> None:
    view = fresh_memory(MENU)
    changes = [
        {KEY: GOOD},
        {KEY: "return torch.sin(x)"},
        *({"lr": 1e-3 + n / 1e4} for n in range(1, 9)),
    ]
    for number, change in enumerate(changes):
        view = remember(view, change, 3.9 - 0.01 * number)
    view = replace(view, reference=MENU.apply(MENU.baseline, {KEY: GOOD}), max_changes=16)
    sampler = SamplerProposer(RAILS, chance=0.0)
    for iteration in range(100, 105):
        offer = sampler.propose(replace(view, iter=iteration))
        assert RAILS.check(offer.reply, view.reference).verdict.allowed
