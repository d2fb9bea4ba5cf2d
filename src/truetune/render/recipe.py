"""Recipe: a plan that can be filled from another row of the same shape, without running the template.

Most chats of one shape (roles, keys present) render alike. The first is rendered with provenance, which gives
its plans and every question that the template asked of the fields, with the answers. A row whose fields answer
alike renders to the same plans; their expressions are evaluated over its fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from truetune.data.conversation import Conversation
from truetune.render.render_plan import Plan
from truetune.render.traced_json import json_body
from truetune.render.traced_string import MAPPINGS, QUESTIONS, STRUCTURE_KEYS, Node, Path, Trace

Step = tuple[Callable[..., Any], int, tuple[Any, ...]]

_METHODS = (
    "strip",
    "lstrip",
    "rstrip",
    "removeprefix",
    "removesuffix",
    "replace",
    "__getitem__",
    "split",
    "rsplit",
    "splitlines",
    "partition",
    "rpartition",
    *MAPPINGS,
)
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(str, name) for name in _METHODS},
    "slice": lambda text, *key: text[slice(*key)],
    "item": lambda pieces, i: pieces[i],
    "json_body": json_body,
}
GUARD_QUESTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(str, name) for name in QUESTIONS},
    "__eq__": str.__eq__,
    "__bool__": bool,
    "__len__": len,
    "is_part_of": lambda text, literal: text in literal,
    "is_one_of": lambda text, literals: text in literals,
}


@dataclass(frozen=True, slots=True)
class Recipe:
    plans: tuple[Plan, ...]
    leaves: tuple[Path, ...]
    steps: tuple[Step, ...]
    """Each makes one value from an earlier one; the leaves come first."""
    guards: tuple[tuple[Callable[..., Any], int, tuple[Any, ...], Any], ...]
    texts: tuple[tuple[str | int, ...], ...]
    """For each plan, its pieces: literal text, or the number of a value."""

    def fill(self, row: Conversation) -> list[list[str]] | None:
        """The texts of each plan's pieces for this row; None where a guard does not hold."""
        values: list[Any] = [_field_at(row, path) for path in self.leaves]
        if not all(isinstance(value, str) for value in values):
            return None  # bytes, a date: the template was shown the name of its type
        try:
            for operation, parent, args in self.steps:
                values.append(operation(values[parent], *args))
            for question, subject, args, answer in self.guards:
                if question(values[subject], *args) != answer:
                    return None
        except (IndexError, ValueError):
            return None
        return [
            [piece if isinstance(piece, str) else values[piece] for piece in texts]
            for texts in self.texts
        ]


def make_recipe(plans: list[Plan], trace: Trace) -> Recipe | None:
    """The recipe of plans that were just made; None where they hold for their row alone."""
    if trace.opaque:
        return None
    numbers: dict[Node, int] = {}
    derived: list[Node] = []
    wanted = [node for node, _, _ in trace.answers] + [
        p.node for plan in plans for p in plan.pieces if p.node
    ]
    leaves = tuple(dict.fromkeys(_leaf_of(node) for node in wanted))
    for i, path in enumerate(leaves):
        numbers["leaf", path] = i
    for node in wanted:
        _number_node(node, numbers, derived)
    steps = tuple(
        (OPERATIONS[operation], numbers[parent], args) for operation, parent, args in derived
    )
    guards = tuple(
        (GUARD_QUESTIONS[question], numbers[node], args, answer)
        for (node, question, args), answer in trace.answers.items()
    )
    texts = tuple(
        tuple(piece.literal if piece.node is None else numbers[piece.node] for piece in plan.pieces)
        for plan in plans
    )
    return Recipe(tuple(plans), leaves, steps, guards, texts)


def _leaf_of(node: Node) -> Path:
    while node[0] != "leaf":
        node = node[1]
    path: Path = node[1]
    return path


def _number_node(node: Node, numbers: dict[Node, int], derived: list[Node]) -> None:
    if node not in numbers:
        _number_node(node[1], numbers, derived)
        numbers[node] = len(numbers)
        derived.append(node)


def _field_at(row: Conversation, path: Path) -> Any:
    value: Any = getattr(row, str(path[0]))
    for key in path[1:]:
        value = value[key]
    return value


def row_shape(row: Conversation) -> tuple[Any, ...]:
    """All of a row that a template can see, but for the strings in its fields."""
    return (
        tuple(map(_value_shape, row.messages)),
        _value_shape(row.tools),
        _value_shape(row.documents),
        row.prompt_messages,
        row.is_preference,
        repr(row.template_kwargs) if row.template_kwargs else "",
    )


def _value_shape(value: Any) -> Any:
    if type(value) is str:
        return str
    if isinstance(value, dict):
        return tuple(
            (key, item if key in STRUCTURE_KEYS and type(item) is str else _value_shape(item))
            for key, item in value.items()
        )
    if isinstance(value, list):
        return (list, *map(_value_shape, value))
    return (type(value), value)
