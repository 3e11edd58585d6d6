"""Define a config of any trainer, and what two of them differ in."""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from autoresearch.values import (
    Frozen,
    Scalar,
)
from autoresearch.words import CODE, code_diff


class BaseConfig(Frozen):
    """One complete setting of a trainer's inputs. The judge, the record, the proposers and the
    ranking use only this much of a config, for any trainer."""

    is_printed: ClassVar[bool]
    """Whether scores and curves are what a program printed: perhaps rounded, or no curve at all."""

    @abstractmethod
    def canonical(self) -> dict[str, Scalar]:
        """Return the config as it is stored and hashed."""

    @property
    @abstractmethod
    def said(self) -> dict[str, Scalar]:
        """Every field that has a value; configs are compared by these."""

    @abstractmethod
    def value(self, name: str) -> Any:
        """Return the value of one field; None if it has none."""

    @property
    def code(self) -> dict[str, str]:
        """Sources of the model's own functions that this config replaces, by key."""
        return {}

    @property
    @abstractmethod
    def warmup_steps(self) -> int:
        """Steps in which the learning rate still rises, if that is known."""

    def function(self, name: str, source: str) -> str:
        """Return the code of a field with this value."""
        return source

    @property
    @abstractmethod
    def tokens_per_step(self) -> int | None:
        """None if only the trainer knows."""

    @property
    def config_hash(self) -> str:
        """SHA-256 of the canonical JSON: sorted keys, no spaces, shortest round-trip floats."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class CommandConfig(BaseConfig):
    """Knobs and constants of a menu that names a command."""

    is_printed: ClassVar[bool] = True
    values: dict[str, Scalar]
    """Values by name, in the menu's order."""

    def canonical(self) -> dict[str, Scalar]:
        """See :meth:`BaseConfig.canonical`."""
        return dict(self.values)

    @property
    def said(self) -> dict[str, Scalar]:
        """See :attr:`BaseConfig.said`."""
        return dict(self.values)

    def value(self, name: str) -> Any:
        """See :meth:`BaseConfig.value`."""
        return self.values.get(name)

    @property
    def warmup_steps(self) -> int:
        """See :attr:`BaseConfig.warmup_steps`: only the command knows."""
        return 0

    @property
    def tokens_per_step(self) -> None:
        """None: only the command knows."""
        return None

    def __hash__(self) -> int:
        return hash(frozenset(self.values.items()))


def code_diffs(config: BaseConfig, before: Mapping[str, Scalar | None]) -> dict[str, list[str]]:
    """Return a small diff of each function that a config changes, by field.

    :param before: values of the config that it is compared with.
    """
    pairs = {
        name: (config.function(name, str(before.get(name) or "")), config.function(name, str(now)))
        for name, now in config.said.items()
        if name.startswith(CODE) and now != (before.get(name) or "")
    }
    return {name: code_diff(*pair) for name, pair in pairs.items() if pair[0] != pair[1]}


def difference(config: BaseConfig, baseline: BaseConfig | None) -> dict[str, Scalar]:
    """Return the fields of a config that differ from the baseline's."""
    if baseline is None:
        return config.canonical()
    base = baseline.said
    return {name: value for name, value in config.said.items() if value != base.get(name)}
