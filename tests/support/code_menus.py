"""Provide menus with code knobs."""

from importlib import resources

from agent.menu.files import ProxyMenu, parse_menu
from trainer.code import SLOTS


def code_menu(*slots: str) -> ProxyMenu:
    """Return cpu-tiny with code knobs for these slots; without an argument, for all."""
    toml = (resources.files("agent.menu") / "shipped" / "cpu-tiny.toml").read_text("utf-8")
    tables = "\n".join(f"[code.{name}]" for name in slots or SLOTS)
    return parse_menu(toml.replace("[constants]", f"{tables}\n[constants]", 1), "of a test")
