"""Edit a menu during its campaign: narrow or widen knobs, freeze them, add some.

An edit changes what proposals may set, and nothing else. The edited menu has the same baseline, and
its knobs keep every value that earlier configs have, so all evidence stays.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from agent.menu.files import menu_of, refuse_unknown
from agent.menu.knobs import Knob
from agent.menu.proxy_menu import ProxyMenu
from autoresearch.domains import domain_keys, read_domain
from autoresearch.domains.base import Domain
from autoresearch.errors import MenuError, SpecError
from autoresearch.values import explain
from autoresearch.words import did_you_mean, json_text
from trainer.schema import AnyConfig
from trajectory.reading import Results
from trajectory.rows import CampaignRow, SpaceRow

FROZEN = "frozen"
"""Key of an edit that freezes a knob, or frees it."""


def menu_now(row: CampaignRow, results: Results) -> ProxyMenu:
    """Return a campaign's menu with the edits of its space so far."""
    return with_edits(menu_of(row), results.rows_of(SpaceRow))


def with_edits(menu: ProxyMenu, edits: Iterable[SpaceRow]) -> ProxyMenu:
    """Return the menu with these edits, one after the other.

    :raises MenuError: naming the knob and the fix.
    """
    for edit in edits:
        menu = edited(menu, edit.knobs)
    return menu


def edited(
    menu: ProxyMenu, tables: Mapping[str, Any], reference: AnyConfig | None = None
) -> ProxyMenu:
    """Return the menu with the keys of these knobs' tables replaced.

    :param tables: keys of a domain, or ``frozen``, by knob; a constant with a whole domain becomes
        a knob.
    :param reference: the config that proposals edit, whose values must stay allowed.
    :raises MenuError: naming the knob and the fix.
    """
    knobs, constants, narrowed = dict(menu.knobs), dict(menu.constants), dict(menu.narrowed)
    parts: dict[str, Any] = {"knobs": knobs, "constants": constants, "narrowed": narrowed}
    try:
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise ValueError(  # noqa: TRY004, TRY301
                    f"{name} = {json_text(table)} is no edit; write {name}.low, {name}.high, "
                    f"{name}.choices or {name}.frozen"
                )
            refuse_unknown(table, [*domain_keys(), FROZEN], f"the edit of {name}")
            if name in constants:
                knobs[name] = _added(name, table, constants.pop(name))
            else:
                _edit(menu, name, table, knobs, narrowed)
        fields = {name: getattr(menu, name) for name in ProxyMenu.model_fields}
        found = ProxyMenu(**{**fields, **parts})
        if reference is not None:
            _refuse_outside(found, reference)
    except ValidationError as error:
        raise MenuError(f"the space cannot be edited so: {explain(error)}") from error
    except (ValueError, SpecError) as error:
        raise MenuError(f"the space cannot be edited so: {error}") from error
    return found


def _added(name: str, table: dict[str, Any], value: object) -> Knob:
    """Return a knob whose default is the constant that it was."""
    if FROZEN in table:
        raise ValueError(f"{name} is a constant of this menu already; remove {name}.{FROZEN}")
    try:
        return Knob.read(name, {**table, "default": value})
    except ValueError as error:
        what = explain(error) if isinstance(error, ValidationError) else error
        raise ValueError(f"{name} was {json_text(value)} in every config so far: {what}") from error


def _edit(
    menu: ProxyMenu,
    name: str,
    table: dict[str, Any],
    knobs: dict[str, Knob],
    narrowed: dict[str, Domain | None],
) -> None:
    """Edit one knob in place."""
    knob = knobs.get(name)
    if knob is None or name in menu.code_knobs:
        what = "is code, whose domain is its signature" if knob else "is neither knob nor constant"
        known = [*menu.knobs, *menu.constants]
        raise ValueError(f"{name} {what} of this menu{did_you_mean(name, known)}")
    is_frozen = table.get(FROZEN, False)
    given = {key: value for key, value in table.items() if key != FROZEN}
    if type(is_frozen) is not bool or (is_frozen and given):
        raise ValueError(f"{name}.{FROZEN} is true alone, or false; write {name}.{FROZEN}=true")
    if is_frozen:
        narrowed[name] = None
        return
    now = narrowed.get(name) or knob.domain
    try:
        whole = given if "type" in given else {**now.table(), **given}
        domain = Knob.read(name, {**whole, "default": read_domain(whole).ends[0]}).domain
        joined = knob.domain.joined(domain)
        if problem := joined.problem():
            raise ValueError(problem)  # noqa: TRY301
    except ValueError as error:
        raise ValueError(f"knob {name}: {error}") from error
    narrowed[name] = domain
    knobs[name] = knob.model_copy(update={"domain": joined})


def _refuse_outside(menu: ProxyMenu, reference: AnyConfig) -> None:
    """Refuse a space without the config that proposals edit, or with nothing to search."""
    if not menu.open_domains:
        raise ValueError("every knob would be frozen, and nothing left to search; free one")
    for name, domain in menu.narrowed.items():
        value = menu.knob_value(reference, name)
        if domain is not None and not domain.contains(value):
            raise ValueError(
                f"proposals edit a config with {name} = {domain.why_not(value)}; let the domain "
                "contain that value"
            )
