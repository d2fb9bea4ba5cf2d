"""The stride between windows is larger than the windows: the tokens between them are never used.

## What it does
Looks at loops over `range(start, stop, stride)` and the slices `x[i : i + length]` in them, through functions and their
arguments. It fires if both numbers are known and the stride is larger than the length by more than one. It does not
report records whose other fields the loop reads too, and windows of less than an eighth of the stride, which are
samples.

## Why it is bad
A window of 256 tokens at a stride of 512 skips half of the corpus, and a batch of 8 rows at a step of 16 skips half of
the rows. The number of windows looks right, and there is no error.

## Example
```python
def windows(ids, length=256, stride=512):
    return [ids[i : i + length] for i in range(0, len(ids) - length, stride)]

rows = windows(tokenizer.encode(open("corpus.txt").read()))
```

## Use instead
```python
def windows(ids, length=256, stride=256):
    return [ids[i : i + length] for i in range(0, len(ids) - length, stride)]

rows = windows(tokenizer.encode(open("corpus.txt").read()))
```

## Fix safety
There is no automatic fix: some rows may be skipped on purpose. The training then has more windows, and takes longer.

## References
- rasbt/LLMs-from-scratch#23
- deepset-ai/FARM#536
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
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.element_of_iterable import (
    representative_element_of_iterable,
)
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import Trace
from truetune.source.symbolic_execution.values_of_run import Item, Operation, Slice, Value

MOST_WINDOWS_IN_STRIDE = 8
"""Windows that would fit into a stride: who takes fewer than one in eight samples on purpose. Chosen, not measured"""


class SkippedTokens(NamedTuple):
    """A slice that is shorter than the stride of its loop."""

    window: ast.AST
    stride: ast.AST
    length: int
    step: int


def _ranges_with_stride(module: Module) -> Iterator[ast.AST]:
    """The calls of `range` with three arguments."""
    yield from (call.node for call in module.calls("range") if len(call.args) == 3)


class TokensBetweenWindowsSkipped(SourceRule):
    code = "SRC532"
    fault = Fault.ROWS_MISSING_FROM_TRAINING
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    looks_at = CodePlaces("ranges with a stride", _ranges_with_stride)

    def findings(self) -> Iterator[Finding]:
        """Findings on windows that are shorter than their stride."""
        module = self.subject
        if next(_ranges_with_stride(module), None) is None:
            return
        seen: set[ast.AST] = set()
        for trace in traces_of_scripts_that_reach_file(module):
            for skipped_tokens in _skipped_tokens(module, trace):
                if skipped_tokens.window in seen:
                    continue
                seen.add(skipped_tokens.window)
                left_out = 1 - skipped_tokens.length / skipped_tokens.step
                yield self.finding(
                    f"windows of {skipped_tokens.length:,} are cut at a stride of {skipped_tokens.step:,}:"
                    f" {left_out:.0%} of the data is between them and never used",
                    f"set the stride to {skipped_tokens.length} or less",
                    cases=[
                        case_of_node(module, skipped_tokens.window),
                        case_of_node(module, skipped_tokens.stride),
                    ],
                )


def _skipped_tokens(module: Module, trace: Trace) -> Iterator[SkippedTokens]:
    """The slices of a run that are shorter than the stride of their loop."""
    ranges = [call for call in trace.calls("range") if len(call.args) == 3]
    for value, window, node in _slices_of_run_in_file(module, trace):
        for call in ranges:
            length = _length_of_window(window, representative_element_of_iterable(call.result))
            step = constant_of(call.args[2])
            if not isinstance(length, int) or not isinstance(step, int):
                continue
            is_gap = 1 < length < step - 1 and step <= MOST_WINDOWS_IN_STRIDE * length
            if is_gap and not _reads_other_parts_behind_window(
                trace, value, representative_element_of_iterable(call.result), length
            ):
                yield SkippedTokens(node, call.node, length, step)


def _reads_other_parts_behind_window(trace: Trace, window: Item, start: Value, length: int) -> bool:
    """Does a loop read other parts behind its window: the other fields of a record, or held-out rows?"""
    return any(
        isinstance(value, Item)
        and value.base is window.base
        and _begins_behind_window(value.key, start, length)
        for value in trace.values
    )


def _begins_behind_window(key: Value, start: Value, length: int) -> bool:
    """Is it a slice from `i + n`, or an index, with an `n` of the window's length or more?

    The targets `x[i + 1 : i + length + 1]` and `x[i + length]`, the next token, belong to the window.
    """
    begin = key.start if isinstance(key, Slice) else key
    if not isinstance(begin, Operation) or not any(one is start for one in begin.operands):
        return False
    numbers = [constant_of(one) for one in begin.operands if one is not start]
    least = length if isinstance(key, Slice) else length + 1
    return any(isinstance(number, int) and number >= least for number in numbers)


def _slices_of_run_in_file(module: Module, trace: Trace) -> Iterator[tuple[Item, Slice, ast.AST]]:
    """The slices that a run takes in a file, each with its place."""
    for value in trace.values:
        if isinstance(value, Item) and isinstance(value.key, Slice) and value.node is not None:
            if module.home(value.node) is module and module.holds(value.node):
                yield value, value.key, value.node


def _length_of_window(window: Slice, start: Value) -> int | None:
    """The length of `x[i : i + length]`; None for another slice."""
    if window.start is not start or not isinstance(window.stop, Operation):
        return None
    if window.stop.operator != "+" or len(window.stop.operands) != 2:
        return None
    rest = [one for one in window.stop.operands if one is not start]
    length = constant_of(rest[0]) if len(rest) == 1 else None
    return length if isinstance(length, int) else None
