"""The kinds of domain a knob may have: one class each, which owns everything that depends on it.

A domain says which values it contains and why another is refused, draws a value, and describes
itself in words, as a menu's table, as a JSON schema, as an Optuna distribution and as the cells
that a report counts in. Nothing outside this package asks of which kind a domain is: a kind is
added with a class of its own (:class:`~autoresearch.domains.base.Domain` lists what it must say)
and a line in :mod:`autoresearch.domains.kinds`.

They lie below all rooms because two of them need the same domain and neither may import the other:
``agent`` searches it, ``trajectory`` reports on it, also for the campaigns of other tools, which
have no menu. The trainer, which takes one value of each field, has no use for domains, so its spec
is not the place.
"""
