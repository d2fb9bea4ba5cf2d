"""`python -m tests.protocol_page` writes the protocols in docs/training-code-protocol.md.

Each protocol is listed with its states, its actions and the orders that it breaks, as the table in the source has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from truetune.checks.rule_catalogue import all_rules
from truetune.checks.source.evidence.training_protocol.all_protocols import ALL_PROTOCOLS
from truetune.checks.source.evidence.training_protocol.base_of_protocol_rules import ProtocolRule
from truetune.checks.source.evidence.training_protocol.protocol_records import (
    START,
    BrokenOrder,
    Protocol,
    ProtocolFamily,
    State,
)

PAGE = Path(__file__).parents[1] / "docs" / "training-code-protocol.md"
BEGIN, END = "<!-- protocols: python -m tests.protocol_page -->", "<!-- end of protocols -->"
TITLES: dict[ProtocolFamily, str] = {
    "setup": "Before the training",
    "step": "In a training step",
    "saving": "Saving and resuming",
}


def protocols() -> str:
    """All protocols, in Markdown."""
    lines: list[str] = []
    for family, title in TITLES.items():
        members = [one for one in ALL_PROTOCOLS if one.family == family]
        lines += [f"### {title}", "", f"Rule: `{rule_of(members[0])}`.", ""]
        for protocol in members:
            lines += [*lines_of(protocol), ""]
    return "\n".join(lines).rstrip()


def rule_of(protocol: Protocol) -> str:
    """The name of the rule that reports the orders of a protocol."""
    rules = (rule for rule in all_rules("source") if issubclass(rule, ProtocolRule))
    return next(rule.name() for rule in rules if protocol in rule.protocols)


def lines_of(protocol: Protocol) -> Iterator[str]:
    """The section of one protocol."""
    texts = {action.name: action.text for action in protocol.actions}
    yield from (f"#### {protocol.title}", "", f"The object: {protocol.about}.", "")
    yield "| state | what it means | from | by |"
    yield "|---|---|---|---|"
    for state in protocol.states:
        yield _line_of_state(protocol, state, texts)
    yield ""
    yield "| broken order | in the state | this call breaks it | severity | releases | what it does | source |"
    yield "|---|---|---|---|---|---|---|"
    for order in protocol.broken_orders:
        yield _line_of_order(order, texts[order.action])


def _line_of_state(protocol: Protocol, state: State, texts: dict[str, str]) -> str:
    """The line of a state, with the states and actions that lead to it."""
    leading = [one for one in protocol.transitions if one.to == state.name]
    sources = {source for one in leading for source in one.sources or ("any",)}
    names = ", ".join(sorted(sources)).replace(START, "the start")
    calls = ", ".join(dict.fromkeys(f"`{texts[one.action]}`" for one in leading))
    return f"| {state.name} | {state.meaning} | {names} | {_in_cell(calls)} |"


def _line_of_order(order: BrokenOrder, call: str) -> str:
    """The line of a broken order."""
    shown = f"`{call}`" if "(" in call or "=" in call else call
    return (
        f"| {order.name} | {order.state} | {_in_cell(shown)} | {order.severity} | {order.releases or 'all'}"
        f" | {_in_cell(order.message)}. Instead: {_in_cell(order.remedy)} | [documented]({order.source}) |"
    )


def _in_cell(text: str) -> str:
    """A text as it can be in a cell of a table."""
    return text.replace("|", "\\|")


def page() -> str:
    """The page with the protocols of today."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{protocols()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    click.echo(f"wrote {PAGE}")
