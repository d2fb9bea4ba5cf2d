"""Recipe: a plan that can be filled from another row of the same shape, without running the template.

Most chats of one shape (roles, keys present) render alike. The first is rendered with provenance, which gives
its plans and every question that the template asked of the fields, with the answers. A row whose fields answer
alike renders to the same plans; their expressions are evaluated over its fields.

Why that is right: a template is a deterministic program. Its run over another row of the same shape takes the same
branches as long as everything it asks of the fields has the same answer, and then it writes the same literal text
and the same expressions. A recipe is those three things, flattened into one list of values:

    leaves   values[0..n)   the fields, by their paths:                ("messages", 0, "content")
    steps    values[n..)    one operation on an earlier value each:    (str.strip, 0, (None,))
    guards                  a question to a value, with its answer:    (str.startswith, 0, ("/think",), False)
    texts                   for each plan, literal text or the number of a value

Example: for "<|user|>" ~ content|trim ~ "<|end|>" a row is filled by one `str.strip` and one join.

The trade-off: the proof rests on `traced_environment` noting every question. That is a large surface, so it fails
towards no recipe (an opaque trace), and `renderer` compares filled rows with rendered ones as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from truetune.data.conversation import Conversation
from truetune.render.traced_json import json_body
from truetune.render.traced_string import (
    MAPPINGS,
    QUESTIONS,
    STRUCTURE_KEYS,
    Node,
    Path,
    Trace,
    field_path_of_expression,
)
from truetune.render.unfilled_example_plan import Plan

Step = tuple[Callable[..., Any], int, tuple[Any, ...]]
"""(operation, number of the value that it is applied to, further arguments)"""
Guard = tuple[Callable[..., Any], int, tuple[Any, ...], Any]
"""(question, number of the value that is asked, further arguments, the answer that must come)"""

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
# By the names that `traced_string` writes into nodes. Those of plain `str` here: a row is filled without tracing.
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
    """The plans of a row, with what is needed to fill them from another row of its shape."""

    plans: tuple[Plan, ...]
    """One for each training example that the row makes"""
    leaves: tuple[Path, ...]
    """The fields that are read, the first values"""
    steps: tuple[Step, ...]
    """Each makes one value from an earlier one; the leaves come first."""
    guards: tuple[Guard, ...]
    """What the template asked; all must be answered as they were"""
    texts: tuple[tuple[str | int, ...], ...]
    """For each plan, its pieces: literal text, or the number of a value."""

    def texts_of_row_if_guards_hold(self, row: Conversation) -> list[list[str]] | None:
        """The texts of each plan's pieces for this row; None where a guard does not hold.

        Args:
            row: a conversation with the same `row_structure_without_texts` as the row that the recipe was made of.

        Returns:
            For each plan the texts of its pieces, to be given to `fill_plan`.
        """
        values: list[Any] = [_field_at(row, path) for path in self.leaves]
        if not all(isinstance(value, str) for value in values):
            return None  # bytes, a date: the template was shown the name of its type
        # Steps before guards: a guard may ask about a value that a step makes ("is the stripped content empty?").
        # A step that fails on this row (fewer pieces of a split than there were) is a row that differs, no error.
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
    """The recipe of plans that were just made; None where they hold for their row alone.

    Args:
        plans: those of one row, from `plan_examples`.
        trace: the trace of all renderings that the plans were made from.
    """
    if trace.opaque:
        return None
    # Expressions that a piece shows or a question is about, in the order of first use. Several often share a parent:
    # each gets one number, so that `content.split('</think>')` is computed once for its two halves.
    nodes = [node for node, _, _ in trace.answers]
    for plan in plans:
        nodes += [piece.node for piece in plan.pieces if piece.node]
    leaves = tuple(dict.fromkeys(field_path_of_expression(node) for node in nodes))
    numbers: dict[Node, int] = {("leaf", path): number for number, path in enumerate(leaves)}
    derived: list[Node] = []
    for node in nodes:
        _number_node(node, numbers, derived)
    steps = tuple(
        (OPERATIONS[operation], numbers[parent], args) for operation, parent, args in derived
    )
    guards = tuple(
        (GUARD_QUESTIONS[question], numbers[node], args, answer)
        for (node, question, args), answer in trace.answers.items()
    )
    texts = tuple(_literal_text_or_value_number_of_pieces(plan, numbers) for plan in plans)
    return Recipe(tuple(plans), leaves, steps, guards, texts)


def _literal_text_or_value_number_of_pieces(
    plan: Plan, numbers: dict[Node, int]
) -> tuple[str | int, ...]:
    """For each piece of a plan its literal text, or the number of the value that it shows."""
    return tuple(
        piece.literal if piece.node is None else numbers[piece.node] for piece in plan.pieces
    )


def _number_node(node: Node, numbers: dict[Node, int], derived: list[Node]) -> None:
    """Number an expression after the one that it is made from, and append both to `derived` where they are new."""
    if node not in numbers:
        _number_node(node[1], numbers, derived)
        numbers[node] = len(numbers)
        derived.append(node)


def _field_at(row: Conversation, path: Path) -> Any:
    """The value at a path of a row; the row's shape says that it is there."""
    value: Any = getattr(row, str(path[0]))
    for key in path[1:]:
        value = value[key]
    return value


def row_structure_without_texts(row: Conversation) -> tuple[Any, ...]:
    """All of a row that a template can see, but for the strings in its fields.

    Equal shapes are what a recipe may take for granted without a guard: number and roles of messages, keys and their
    order (a template may loop over them), types, and every value that is no text.
    """
    # The spec (learn, history) is the same for all rows of a renderer and needs no place here; whether a row is a pair
    # or a verdict changes it, and `prompt_messages` says which turns are learned.
    return (
        tuple(map(_structure_of_value, row.messages)),
        _structure_of_value(row.tools),
        _structure_of_value(row.documents),
        row.prompt_messages,
        row.is_preference,
        repr(row.template_kwargs) if row.template_kwargs else "",
    )


def _structure_of_value(value: Any) -> Any:
    """The shape of one value: `str` for a text, its keys or items for a container, itself with its type for others."""
    if type(value) is str:
        return str
    if isinstance(value, dict):
        return tuple(
            (
                key,
                item if key in STRUCTURE_KEYS and type(item) is str else _structure_of_value(item),
            )
            for key, item in value.items()
        )
    if isinstance(value, list):
        return (list, *map(_structure_of_value, value))
    # With the type, for 1, 1.0 and True are equal to Python and are written differently by a template.
    return (type(value), value)
