"""The evaluation data are part of the training data.

## What it does
Compares `eval_dataset` with `train_dataset` of a trainer: the same data set, or rows selected from it that stay in it;
and two slices of one split (`train[:90%]`, `train[80%:]`) that overlap.

## Why it is bad
The evaluation loss follows the training loss and says nothing on new data: overfitting can't be seen, and the best
checkpoint is the one that knows its rows best.

## Example
```python
from datasets import load_dataset
from trl import SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train")
trainer = SFTTrainer(model="model", train_dataset=rows, eval_dataset=rows.select(range(100)))
```

## Use instead
```python
from datasets import load_dataset
from trl import SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train").train_test_split(100, seed=0)
trainer = SFTTrainer(model="model", train_dataset=rows["train"], eval_dataset=rows["test"])
```

## Fix safety
A split takes the rows out of training; with few rows, keep the split small.

## References
- OpenRLHF/OpenRLHF#1089, huggingface/datasets#4261
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import calls_with
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

ALL_ROWS_METHODS = (
    "map",
    "shuffle",
    "with_format",
    "rename_column",
    "rename_columns",
    "remove_columns",
    "select_columns",
    "cast",
)
"""What gives every row again"""
PART_OF_ROWS_METHODS = ("select", "take", "shard", "filter", "skip")
"""What gives rows that stay in the data set"""


SPLIT_SLICE = re.compile(r"(?P<name>\w+)\[(?P<begin>\d+%?)?:(?P<end>\d+%?)?\]")
TRAINERS = ("transformers.*Trainer", "trl.*Trainer")
DATA_SETS = ("train_dataset", "eval_dataset")


class EvaluatedOnTrainingRows(SourceRule):
    code = "SRC054"
    severity = "warning"
    since = "0.1.0"
    looks_at = calls_with("trainers with rows to train and to evaluate on", DATA_SETS, *TRAINERS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in module.calls(*TRAINERS):
            train, held = call.keywords.get("train_dataset"), call.keywords.get("eval_dataset")
            if train is None or held is None:
                continue
            train, held = _without_default(train), _without_default(held)
            if _is_same_expression(train, held) or _is_same_expression(
                _only_source(module, train, ALL_ROWS_METHODS),
                _only_source(module, held, ALL_ROWS_METHODS + PART_OF_ROWS_METHODS),
            ):
                yield self.finding(
                    "the evaluation rows are training rows",
                    "split them off first: dataset.train_test_split(...), and train on the rest",
                    cases=[case_at(module, held)],
                )
                continue
            slices = _overlapping_slices(module, train, held)
            if slices is not None:
                of_train, of_held = slices
                yield self.finding(
                    f"{of_train} and {of_held} overlap: evaluation rows are training rows",
                    "let the second slice begin where the first one ends",
                    cases=[case_at(module, held), case_at(module, train)],
                )


def _overlapping_slices(module: Module, train: ast.expr, held: ast.expr) -> tuple[str, str] | None:
    """The slices of one split of the same data that both are read by, where they share rows; None otherwise."""
    load_of_train, load_of_held = _load_of_rows(module, train), _load_of_rows(module, held)
    if load_of_train is None or load_of_held is None:
        return None
    if _dump_without_split(load_of_train) != _dump_without_split(load_of_held):
        return None
    first = module.flow.value(load_of_train.keywords.get("split"))
    second = module.flow.value(load_of_held.keywords.get("split"))
    if not isinstance(first, str) or not isinstance(second, str):
        return None
    return (first, second) if _slices_overlap(first, second) else None


def _slices_overlap(first: str, second: str) -> bool:
    """Do two slices of a split share rows, as `train[:90%]` and `train[80%:]` do?"""
    one, other = _slice_range(first), _slice_range(second)
    if one is None or other is None:
        return False
    split, unit, begin, end = one
    other_split, other_unit, other_begin, other_end = other
    # Percent against rows cannot be compared without the number of rows.
    is_comparable = split == other_split and unit == other_unit
    return is_comparable and max(begin, other_begin) < min(end, other_end)


def _dump_without_split(load: Call) -> str:
    """A call of `load_dataset` as text, but for the split that it asks for."""
    keywords = [keyword for keyword in load.node.keywords if keyword.arg != "split"]
    return ast.dump(ast.Call(load.node.func, load.node.args, keywords))


def _load_of_rows(module: Module, node: ast.expr) -> Call | None:
    """The `load_dataset` that rows come from, through what gives every row again."""
    made = _only_source(module, node, ALL_ROWS_METHODS)
    if isinstance(made, ast.Call) and module.flow.call(made).named("datasets.load_dataset"):
        return module.flow.call(made)
    return None


def _slice_range(split: str) -> tuple[str, str, float, float] | None:
    """The split, its unit, and where the slice begins and ends: `train[80%:]`. None where it is no plain slice."""
    found = SPLIT_SLICE.fullmatch(split)
    if found is None or not (found["begin"] or found["end"]):
        return None
    unit = "%" if "%" in split else ""
    bounds = [found["begin"] or "0", found["end"] or "inf"]
    return found["name"], unit, float(bounds[0].rstrip("%")), float(bounds[1].rstrip("%"))


def _without_default(node: ast.expr) -> ast.expr:
    """Without `... if asked for else None`."""
    while isinstance(node, ast.IfExp):
        bare = [
            n
            for n in (node.body, node.orelse)
            if not (isinstance(n, ast.Constant) and n.value is None)
        ]
        if len(bare) != 1:
            return node
        node = bare[0]
    return node


def _is_same_expression(one: ast.expr | None, other: ast.expr | None) -> bool:
    """One expression; or two of the same words, such as `rows["train"]`, that call nothing."""
    if one is None or other is None:
        return False
    plain = not isinstance(one, ast.Constant) and not any(
        isinstance(node, ast.Call) for node in ast.walk(one)
    )
    return one is other or (plain and ast.dump(one) == ast.dump(other))


def _only_source(module: Module, node: ast.expr, through: tuple[str, ...]) -> ast.expr | None:
    """The one expression, in the function that asks, that a data set comes from; None where several could."""
    scope = module.scopes.of.get(node)
    while True:
        node = _without_default(node)
        origins = [o for o in module.flow.origins(node) if not _is_none(o.node)]
        made = (
            origins[0].node
            if len(origins) == 1 and not origins[0].path and not origins[0].element
            else None
        )
        if (
            not isinstance(made, (ast.Call, ast.Subscript))
            or module.scopes.of.get(made) is not scope
        ):
            return None
        if (
            isinstance(made, ast.Subscript)
            or not isinstance(made.func, ast.Attribute)
            or made.func.attr not in through
        ):
            return made
        node = made.func.value


def _is_none(node: ast.AST) -> bool:
    """Is it the constant None?"""
    return isinstance(node, ast.Constant) and node.value is None
