"""The base of the rules that report the broken orders of one family of protocols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.training_protocol.follow_object_states import (
    BrokenPlace,
    broken_orders,
)
from truetune.checks.source.evidence.training_protocol.protocol_records import Protocol
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module


def calls_of_protocols(what: str, protocols: tuple[Protocol, ...]) -> CodePlaces:
    """The calls that are actions of some protocols, as the places that a rule examines.

    Args:
        what: What the places are, in the plural.
        protocols: The protocols.

    Returns:
        The places; calls of one object and of another kind of object with methods of the same name count alike.
    """
    actions = [action for protocol in protocols for action in protocol.actions]
    functions = [name for action in actions for name in action.functions]
    methods = [name for action in actions for name in action.methods]

    def find(module: Module) -> Iterator[Call]:
        yield from module.calls(*functions)
        yield from module.methods(*methods)

    return CodePlaces(what, find)


class ProtocolRule(SourceRule):
    """Reports each broken order of some protocols, with both places."""

    protocols: ClassVar[tuple[Protocol, ...]]

    def findings(self) -> Iterator[Finding]:
        for place in broken_orders(self.subject, self.protocols):
            yield self._finding_on_place(place)

    def _finding_on_place(self, place: BrokenPlace) -> Finding:
        """The finding on one broken order."""
        module, order = self.subject, place.order
        first = case_of_node(module, place.first.node)
        second = case_of_node(module, place.second.node)
        return self.finding(
            order.message,
            order.remedy,
            severity=order.severity,
            evidence=[
                f"{_line_of_first_place_and_file_if_other(first, second)} runs before line"
                f" {second.line}, on the same object:"
                f" {place.protocol.about}",
                f"order `{order.name}`: {order.source}",
            ],
            cases=[second, first],
        )


def _line_of_first_place_and_file_if_other(first: Case, second: Case) -> str:
    """The line of the first place, with its file where that is another one."""
    if first.file == second.file:
        return f"line {first.line}"
    return f"line {first.line} of {first.file}"
