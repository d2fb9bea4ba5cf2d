"""Completions are ordered in blocks but grouped as neighbours: each group mixes completions of several prompts.

## What it does
Follows rewards in a hand-written policy training (GRPO and the like). `prompts * k`, `ids.repeat(k, 1)` and `extend` in
a loop over k give all prompts once, and then all again, so the completions of one prompt are far apart. It fires if
rewards of such a list are viewed as `(-1, k)` or `(number of prompts, k)`, which takes k neighbours as the completions
of one prompt. A single prompt that is repeated, and completions that are reordered, are not reported.

## Why it is bad
Each completion gets the mean of other prompts' rewards as its baseline. Answers to easy prompts become more likely and
those to hard ones less likely, whatever they say. The mean reward hardly changes.

## Example
```python
import torch

K = 8
for rows in batches:
    prompts = [row["prompt"] for row in rows]
    repeated = prompts * K
    texts = sample(model, repeated)
    rewards = torch.tensor([reward(p, t) for p, t in zip(repeated, texts)])
    groups = rewards.view(-1, K)
    advantages = (groups - groups.mean(1, keepdim=True)).view(-1)
```

## Use instead
```python
import torch

K = 8
for rows in batches:
    prompts = [row["prompt"] for row in rows]
    repeated = [prompt for prompt in prompts for _ in range(K)]
    texts = sample(model, repeated)
    rewards = torch.tensor([reward(p, t) for p, t in zip(repeated, texts)])
    groups = rewards.view(-1, K)
    advantages = (groups - groups.mean(1, keepdim=True)).view(-1)
```

## Fix safety
There is no automatic fix: either repeat each prompt k times in a row, or view the rewards as (k, -1). The training has
to be repeated.

## References
- radixark/miles#1573
- THUDM/slime#1414
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.prompts_padded_on_the_right import call_making_ids
from truetune.checks.source.evidence.rewards_viewed_as_groups import (
    GroupView,
    factor_of_copies_as_blocks,
    factor_of_copies_in_runs,
    group_views,
    is_rest,
    is_same_number,
)
from truetune.checks.source.evidence.training_protocol.find_acted_objects import (
    TOKENIZERS,
    is_made_by,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Item,
    Operation,
    Result,
    Sequence,
    Slice,
    Value,
    parts_of_value,
)

VIEWS = ("view", "reshape")
REORDERINGS = ("sort", "argsort", "transpose", "permute", "t", "sorted", "rearrange")
MAX_VALUES = 400
"""Values behind rewards; some fifty"""


class MixedGroups(NamedTuple):
    """A view that takes blocks for runs."""

    view: ast.AST
    repetition: ast.AST


def _views_of_groups(module: Module) -> Iterator[ast.AST]:
    """Views with two sizes."""
    for view in group_views(module):
        yield view.node


class GroupsMixPrompts(SourceRule):
    code = "SRC527"
    fault = Fault.COMPLETIONS_GROUPED_ACROSS_PROMPTS
    symptoms = ("reward-does-not-rise", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("views of groups", _views_of_groups)

    def findings(self) -> Iterator[Finding]:
        """Findings on groups of rewards that hold several prompts."""
        module = self.subject
        if next(_views_of_groups(module), None) is None:
            return
        seen: set[ast.AST] = set()
        for trace in (*traces_of_scripts_that_reach_file(module), None):
            for mixed_group in (
                _mixed_groups(module, trace) if trace else _mixed_groups_by_loops(module)
            ):
                if mixed_group.view in seen:
                    continue
                seen.add(mixed_group.view)
                yield self.finding(
                    "the whole list of prompts is repeated k times, but the rewards are grouped as k neighbours:"
                    " each group"
                    " mixes completions of several prompts",
                    "repeat each prompt k times in a row ([p for p in prompts for _ in range(k)], or"
                    " repeat_interleave(k)"
                    " of a tensor); or group with view(k, -1), and take means over dimension 0",
                    cases=[
                        case_of_node(module, mixed_group.view),
                        case_of_node(module, mixed_group.repetition),
                    ],
                )


def _mixed_groups(module: Module, trace: Trace) -> Iterator[MixedGroups]:
    """The views of a run that take blocks for runs."""
    for call in trace.methods(*VIEWS):
        if call.home is not module or len(call.args) != 2 or constant_of(call.args[0]) != -1:
            continue
        repetition = _repetition_as_blocks(call, call.args[1])
        if repetition is not None and repetition.node is not None:
            yield MixedGroups(call.node, repetition.node)


def _mixed_groups_by_loops(module: Module) -> Iterator[MixedGroups]:
    """The views of a file that take blocks for runs, by the code that lays out the blocks."""
    for view in group_views(module):
        repetition = _only_repetition_as_blocks(module, view)
        if repetition is not None:
            yield MixedGroups(view.node, repetition)


def _only_repetition_as_blocks(module: Module, view: GroupView) -> ast.AST | None:
    """The code that repeats all rows as blocks before a view takes runs; None where runs are made, too."""
    node: ast.AST | None = None
    for part in backward_slice(module, view.viewed):
        if factor_of_copies_in_runs(part) is not None or _is_reordering(part):
            return None
        if node is None:
            node = _code_repeating_all_rows_as_blocks(module, part, view)
    return node


def _is_reordering(part: ast.AST) -> bool:
    """Does a part put rows into another order?"""
    if isinstance(part, ast.Slice):
        return part.step is not None
    if isinstance(part, ast.Subscript):
        steps = (ast.Mult, ast.FloorDiv, ast.Mod)
        index = ast.walk(part.slice)
        return any(isinstance(one, ast.BinOp) and isinstance(one.op, steps) for one in index)
    return isinstance(part, ast.Call) and ast.unparse(part.func).rpartition(".")[2] in REORDERINGS


def _takes_runs_of(module: Module, view: GroupView, factor: ast.expr) -> bool:
    """Does a view take as many neighbours as there are copies, rather than as many rows as there are copies?"""
    first, second = view.sizes
    if ast.unparse(first) == ast.unparse(factor):
        return False
    return is_same_number(module, second, factor)


def _code_repeating_all_rows_as_blocks(
    module: Module, part: ast.AST, view: GroupView
) -> ast.AST | None:
    """What lays all rows out once for each number: `prompts * k`, `[p for _ in range(k) for p in prompts]`, `extend`
    in a loop.
    """
    factor = factor_of_copies_as_blocks(module, part)
    if factor is not None:
        return part if _takes_runs_of(module, view, factor) else None
    if not isinstance(part, ast.Name) or not is_rest(view.sizes[0]):
        return None
    for loop in module.nodes(ast.For):
        if ast.unparse(loop.iter) != f"range({ast.unparse(view.sizes[1])})":
            continue
        for statement in loop.body:
            shown = ast.unparse(statement)
            if shown.startswith((f"{part.id}.extend(", f"{part.id} += ")) and "[" not in shown:
                return statement
    return None


def _repetition_as_blocks(call: CallEvent, count: Value) -> Value | None:
    """The repetition as blocks of that number that a tensor comes from; None where runs are made too."""
    waiting = [call.receiver] if call.receiver is not None else []
    seen = {id(one) for one in waiting}
    repeated_value: Value | None = None
    while waiting:
        value = waiting.pop()
        if len(seen) > MAX_VALUES or _repeats_each_row_or_reorders_rows(value):
            return None
        if _repeats_blocks(value, count):
            repeated_value = repeated_value or value
        fresh = [one for one in _values_composing_value(value) if id(one) not in seen]
        seen.update(map(id, fresh))
        waiting += fresh
    return repeated_value


def _values_composing_value(value: Value) -> Iterator[Value]:
    """What a value is made of, also what a comprehension goes over."""
    yield from parts_of_value(value)
    if isinstance(value, Sequence) and value.made_over is not None:
        yield value.made_over


def _repeats_each_row_or_reorders_rows(value: Value) -> bool:
    """Does a value repeat each row in a row, or put rows into another order, as `outs[i + j * n]` does?"""
    if isinstance(value, Item):
        key = value.key
        is_step = isinstance(key, Slice) and key.step is not None
        return is_step or (
            isinstance(key, Operation) and _does_index_use_multiplication_or_division(key)
        )
    if not isinstance(value, Result):
        return False
    names = {"repeat_interleave", "sort", "argsort", "transpose", "permute", "t"}
    is_moved = value.call.method in names or value.call.named("torch.repeat_interleave", "sorted")
    count = constant_of(value.call.keywords.get("num_return_sequences"))
    return is_moved or (isinstance(count, int) and count > 1)


def _does_index_use_multiplication_or_division(place: Operation) -> bool:
    """Is a place in a list computed by a product, a division to whole numbers or a remainder?"""
    return place.operator in ("*", "//", "%") or any(
        isinstance(one, Operation) and _does_index_use_multiplication_or_division(one)
        for one in place.operands
    )


def _repeats_blocks(value: Value, count: Value) -> bool:
    """Is a value `prompts * k` or `ids.repeat(k, 1)`, with the number of the view?"""
    if isinstance(value, Operation) and value.operator == "*" and len(value.operands) == 2:
        rows, number = value.operands
        is_list = isinstance(rows, Sequence) and rows.kind == "list" and rows.is_open
        return is_list and _are_same_number(number, count)
    if isinstance(value, Result) and value.call.method == "repeat" and len(value.call.args) == 2:
        is_of_rows = constant_of(value.call.args[1]) == 1 and not _are_repeated_ids_of_one_text(
            value.call
        )
        return is_of_rows and _are_same_number(value.call.args[0], count)
    return False


def _are_repeated_ids_of_one_text(repetition: CallEvent) -> bool:
    """Are ids repeated that a tokenizer gave for one text? It makes no tensor of several without `padding`."""
    call_event = call_making_ids(repetition.receiver) if repetition.receiver is not None else None
    if call_event is None or not is_made_by(call_event.receiver, TOKENIZERS) or call_event.is_open:
        return False
    padding = call_event.keywords.get("padding")
    return padding is None or constant_of(padding) is False


def _are_same_number(one: Value, other: Value) -> bool:
    """Are two values the same number?"""
    if one is other:
        return True
    number = constant_of(one)
    return isinstance(number, int) and number > 1 and number == constant_of(other)
