"""Drive a running loop through the MCP server, with the SDK's own client."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from agent.search.stopping import Goal
from tests.support.campaigns import COMMAND
from tests.support.coroutines import finished
from tests.support.nights import work

ME = "test-agent"
TOOLS = {
    *("status", "top", "explain", "menu", "check", "queue", "sql", "report"),
    *("propose", "withdraw"),
}


class PausedLoop:
    """Run a loop in a thread, which waits in its second iteration until :meth:`go`."""

    def __init__(self, home: Path) -> None:
        self.campaign = home / "campaign"
        self._may_go = threading.Event()
        work(home, Goal(iterations=1), baseline_seeds=2)
        self._thread = threading.Thread(
            target=work,
            args=(home, Goal(iterations=4)),
            kwargs={"baseline_seeds": 2, "at_trial": lambda *_: self._may_go.wait()},
        )
        self._thread.start()

    def go(self) -> None:
        self._may_go.set()
        self._thread.join()


def connected(where: Any) -> Any:
    """Return a client. Its modules load slowly, and every test worker loads this module."""
    from mcp import Client
    from mcp.types import Implementation

    return Client(where, client_info=Implementation(name=ME, version="1"))


async def answer(client: Any, tool: str, **arguments: Any) -> Any:
    """Call a tool; return its answer, or None if it refused."""
    result = await client.call_tool(tool, arguments)
    return None if result.is_error else result.structured_content


async def drive(client: Any, loop: PausedLoop) -> None:
    """Look around, propose, withdraw, and see what became of the proposal."""
    assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
    assert (await answer(client, "status"))["state"] == "running"
    menu = await answer(client, "menu")
    assert "lr" in str(menu["knobs"])
    assert not (await answer(client, "check", changes={"lr": 7}))["allowed"]
    assert await answer(client, "propose", changes={"lr": 7}, reason="too high") is None
    wanted = await answer(client, "propose", changes={"lr": 0.00234}, reason="between the two")
    other = await answer(client, "propose", changes={"lr": 0.00432}, reason="a mistake")
    assert await answer(client, "withdraw", id=other["id"]) is not None
    assert await answer(client, "withdraw", id=other["id"]) is None
    [waiting] = (await answer(client, "queue"))["result"]
    assert (waiting["id"], waiting["author"]) == (wanted["id"], ME)
    await asyncio.to_thread(loop.go)
    rows = [await answer(client, "explain", iteration=number) for number in (2, 3, 4)]
    [row] = [row for row in rows if row["proposer"].get("queue_id") == wanted["id"]]
    assert row["proposer"]["author"] == ME
    assert row["proposal"]["changes"] == {"lr": 0.00234}
    assert await answer(client, "explain", iteration=99) is None
    assert (await answer(client, "top", k=2))["configs"]
    assert (await answer(client, "report"))["iterations"] == 4
    found = await answer(client, "sql", query="SELECT count(*) AS n FROM iterations")
    assert found["rows"] == [{"n": 4}]
    assert await answer(client, "sql", query="DELETE FROM iterations") is None
    for uri in ("autoresearch://journal", "autoresearch://docs/automation"):
        [content] = (await client.read_resource(uri)).contents
        assert len(content.text) > 1000  # type: ignore[union-attr]


def test_an_agent_drives_a_running_loop_over_standard_input_and_output(tmp_path: Path) -> None:
    from mcp import StdioServerParameters

    loop = PausedLoop(tmp_path)
    server = StdioServerParameters(
        command=str(COMMAND), args=["mcp", f"--campaign={loop.campaign}"]
    )

    async def talk() -> None:
        async with connected(server) as client:
            await drive(client, loop)

    try:
        finished(talk())
    finally:
        loop.go()
