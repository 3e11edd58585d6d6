"""Kinds of domain that a knob may have, one class each.

A domain says which values it contains and why it refuses another, and draws values. It describes
itself in words, as a menu's table, as a JSON schema, as an Optuna distribution and as the cells of
a report. Nothing outside this package asks for a domain's kind. To add a kind, write a class
(:class:`~autoresearch.domains.base.Domain` lists its methods) and a line in
:mod:`autoresearch.domains.kinds`.

Domains live in the base package because ``agent`` searches them and ``trajectory`` reports on them,
and neither may import the other. Imported campaigns have domains but no menu. The trainer takes one
value of each field and needs no domains.
"""
