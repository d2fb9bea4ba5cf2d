"""Rows are transformed, but the result is discarded.

## What it does
Looks for statements that consist only of `rows.map(...)`, `filter`, `rename_column`, `train_test_split` or another
method of a data set that returns a new one, for those of pandas without `inplace=True`, for
`concatenate_datasets(...)`, and for string methods (`text.replace(...)`), if the unchanged object is used afterwards.
It also fires on a `map` whose function changes its row and returns nothing. It does not report functions that count or
print, the last line of a notebook cell, which may show rows, and statements that are repeated with their result kept.

## Why it is bad
None of these methods works in place. Training gets the unchanged rows: without the prompt, the answer or the filter.
The loss still falls, since it is computed on other text.

## Example
```python
from datasets import load_dataset
from trl import SFTTrainer

rows = load_dataset("json", data_files="news.jsonl", split="train")
rows.map(lambda row: {"text": row["article"] + "\\nSummary: " + row["summary"]})
SFTTrainer("model", train_dataset=rows).train()
```

## Use instead
```python
from datasets import load_dataset
from trl import SFTTrainer

rows = load_dataset("json", data_files="news.jsonl", split="train")
rows = rows.map(lambda row: {"text": row["article"] + "\\nSummary: " + row["summary"]})
SFTTrainer("model", train_dataset=rows).train()
```

## Fix safety
Unsafe: the assignment changes what the model is trained on, as was intended.

## References
- Hugging Face Datasets documentation, "Process": "map returns a new dataset"
- pandas documentation, "Copy-on-Write"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.discarded_results_of_transformations import (
    DroppedTransformation,
    dropped_transformations,
    statements_of_pure_methods,
)
from truetune.checks.source.evidence.prompt_forms import trains_a_model
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import replace_expression
from truetune.source.parsed_source_file import Module

WRITES_ROWS = ("to_json", "to_csv", "to_parquet", "save_to_disk", "to_dict", "push_to_hub")
HARMLESS = frozenset(("shuffle", "sort", "sort_values", "sample", "reset_index", "with_format"))
"""What changes the order or the form of rows alone"""


def _row_transformations(module: Module) -> Iterator[object]:
    """Calls that transform rows, with their result kept or not."""
    yield from statements_of_pure_methods(module)
    yield from _map_calls(module)


def _map_calls(module: Module) -> Iterator[Call]:
    """Calls of `map` on a data set."""
    for call in module.methods("map"):
        if call.receiver is not None and "dataset" in module.flow.types(call.receiver):
            yield call


class RowTransformResultThrownAway(SourceRule):
    code = "SRC250"
    fault = Fault.CODE_WITHOUT_EFFECT
    symptoms = ("nothing-is-learned", "garbage-output", "loss-does-not-fall", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("calls that transform rows", _row_transformations)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if not _works_on_training_rows(module):
            return
        for dropped in dropped_transformations(module):
            yield self._finding_on_dropped(dropped)
        for call in _map_calls(module):
            function = _field_setting_function_without_result(module, call)
            if function is not None:
                yield self.finding(
                    "the function passed to map changes its row but returns nothing: map keeps the unchanged rows",
                    "return the row at the end of the function",
                    cases=[case_of_node(module, call.node), case_of_node(module, function)],
                )

    def _finding_on_dropped(self, dropped: DroppedTransformation) -> Finding:
        """The finding on a transformation whose result is dropped."""
        module, call = self.subject, dropped.call
        written = module.text_of(call)
        method = module.flow.call(call).method or module.text_of(call.func)
        is_simple = dropped.can_be_assigned and isinstance(call.func, ast.Attribute)
        target = (
            module.text_of(call.func.value)
            if is_simple and isinstance(call.func, ast.Attribute)
            else ""
        )
        short = " ".join(f"{target} = {target}.{method}(...)".split())
        shown = f"{target}.{method}(...)" if is_simple else f"{method}(...) of {dropped.name}"
        return self.finding(
            f"{shown} returns a new object, but the result is discarded: the unchanged {dropped.name} is used"
            " afterwards",
            f"keep the result: {short}"
            if is_simple
            else "assign the result to a variable, and use that afterwards",
            severity="warning" if method in HARMLESS or dropped.kind == "text" else None,
            cases=[case_of_node(module, call), case_of_node(module, dropped.used)],
            fix=fix_of_changes(
                module, replace_expression(module, call, f"{target} = {written}"), safe=False
            )
            if is_simple
            else None,
        )


def _works_on_training_rows(module: Module) -> bool:
    """Does the file, or one that runs with it, train, write rows, or use a library of training?"""
    return any(
        trains_a_model(one) or any(one.methods(*WRITES_ROWS)) or "datasets" in one.text
        for one in module.self_and_files_run_together
    )


def _field_setting_function_without_result(module: Module, call: Call) -> ast.AST | None:
    """The function of a `map` that sets fields of its row and returns nothing; None where it returns something."""
    function_argument = call.argument(0, "function")
    function = (
        module.flow.function_that_expression_names(function_argument)
        if function_argument is not None
        else None
    )
    if not isinstance(function, ast.FunctionDef) or not function.args.args:
        return None
    if _gives_a_value(function) or not _sets_fields(function, row=function.args.args[0].arg):
        return None
    return function


def _gives_a_value(function: ast.FunctionDef) -> bool:
    """Does a function return a value anywhere, or yield?"""
    return any(
        isinstance(part, ast.Yield | ast.YieldFrom)
        or (isinstance(part, ast.Return) and part.value is not None)
        for part in ast.walk(function)
    )


def _sets_fields(function: ast.FunctionDef, row: str) -> bool:
    """Does a function set fields of the row of that name: `row["text"] = ...`?"""
    return any(
        isinstance(part, ast.Subscript)
        and isinstance(part.ctx, ast.Store)
        and isinstance(part.value, ast.Name)
        and part.value.id == row
        for part in ast.walk(function)
    )
