"""Define what everything around a trial asks its trainer, so that nothing asks which one it is."""

from typing import ClassVar

from autoresearch.values import Frozen


class Trainer(Frozen):
    """Trains configs. A subclass answers for one kind of them."""

    entry: ClassVar[str]
    """``module:function`` that a trial's process runs."""
    reads_corpus: ClassVar[bool]
    """Whether it trains on a prepared corpus, and autoresearch scores what it trained."""
    is_watched: ClassVar[bool]
    """Whether it runs programs of others, whose steps, memory and output are only observed."""

    @property
    def prunes(self) -> bool:
        """Whether its curve is in nats per token, which the rule of pruning needs."""
        return True

    def makes_code(self, device: str) -> bool:
        """Return whether it compiles kernels itself."""
        return False

    def caches_code(self, device: str) -> bool:
        """Return whether its trials need a compile cache."""
        return self.makes_code(device)

    def imports(self, backend: str, device: str) -> tuple[str, ...]:
        """Return what its trials would each import and compute, for the fork server to do once."""
        raise NotImplementedError
