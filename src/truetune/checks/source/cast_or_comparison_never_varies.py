"""A cast is always true, or a comparison never: `bool("0")`, `"1" == 1`, `winner == "a"` of `model_a` and `model_b`.

## What it does
Follows what is cast to `bool` or compared with a constant back to the column that it is read from.

A cast is reported if each cell is text because of how it was read (`csv.DictReader`, `dtype=str`, after `strip()`), and
if labels are made by `bool` of numbers that are never 0 (1 and -1, 1 to 5).

A comparison (also in `match`, `isin` or a table that is looked up) is reported if text is compared with a number. If
the file of the rows is here, it is also reported if no row has the constant but one has another spelling of it
(`"True"` and True, `"Good"` and `"good"`), or if no row has anything like it (`winner == "a"` with values `model_a` and
`model_b`) and the test picks the sides of a pair or makes a label. A value that a file may simply lack is not reported.
`x == "a" or "b"` is true for every x.

## Why it is bad
`bool` of a text is True unless it is empty, so each KTO label becomes True and each rejected answer is trained as a
wanted one. A comparison of text with a number is never true: a filter keeps no row, or all of them, and the same side
of each pair is chosen. A preference run then stays at a loss of ln 2 = 0.6931 and an accuracy of 0.5.

## Example
```python
import csv
from trl import KTOTrainer

rows = []
for row in csv.DictReader(open("votes.csv")):
    rows.append({"prompt": row["prompt"], "completion": row["answer"], "label": bool(row["label"])})
KTOTrainer(model="model", train_dataset=rows).train()
```

## Use instead
```python
import csv
from trl import KTOTrainer

rows = []
for row in csv.DictReader(open("votes.csv")):
    is_good = row["label"].strip().lower() in ("1", "true", "yes")
    rows.append({"prompt": row["prompt"], "completion": row["answer"], "label": is_good})
KTOTrainer(model="model", train_dataset=rows).train()
```

## Fix safety
There is no automatic fix: only the author of the file knows which texts mean yes. List the values of the column first.

## References
- Python's documentation, "Truth Value Testing"; huggingface/trl, KTO dataset format (`label` is a boolean)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.constant_casts_and_comparisons import (
    always_true_alternatives,
    casts_unseen_values_to_labels,
    constant_results,
)
from truetune.checks.source.evidence.literals_held_by_no_row import tests_no_row_passes
from truetune.source.parsed_source_file import Module


def _casts_and_comparisons(module: Module) -> Iterator[ast.AST]:
    """Casts to `bool` and comparisons with a constant."""
    for call in module.calls("bool"):
        yield call.node
    for call in module.methods("astype"):
        yield call.node
    for node in module.nodes(ast.Compare):
        if isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
            yield node
    yield from module.nodes(ast.MatchValue)


class CastOrComparisonNeverVaries(SourceRule):
    code = "SRC180"
    fault = Fault.LABEL_NAMES_MIXED_UP
    symptoms = ("dpo-without-effect", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("casts to bool, and comparisons", _casts_and_comparisons)

    def unmet(self) -> Unmet | None:
        """Why the rule can say nothing, also where the values that a cast turns into labels are not
        seen; None where it can.
        """
        lacking = super().unmet()
        if lacking is None and casts_unseen_values_to_labels(self.subject):
            return Unmet(
                "a label is made by a cast to bool, and the values that it casts are not known",
                "put the file of the rows next to the script",
            )
        return lacking

    def findings(self) -> Iterator[Finding]:
        """Findings on casts and comparisons that give one result for all rows of a column."""
        module = self.subject
        reported_nodes: set[ast.AST] = set()
        for constant_result in constant_results(module):
            reported_nodes.add(constant_result.node)
            remedy = "compare with the type and spelling that the rows have"
            if constant_result.kind == "cast":
                remedy = f"compare with the texts that mean yes: {_suggest_comparison(module, constant_result.node)}"
            elif constant_result.kind.startswith("cast of"):
                limit = "> 0" if constant_result.kind == "cast of signs" else ">= LEAST_GOOD_GRADE"
                remedy = f"compare with a number: {_cast_operand_in_words(module, constant_result.node)} {limit}"
            yield self.finding(
                constant_result.what,
                remedy,
                severity="error" if constant_result.is_proved else "warning",
                cases=[case_of_node(module, constant_result.node)],
            )
        for unmet in tests_no_row_passes(module):
            if unmet.node not in reported_nodes:
                yield self.finding(
                    unmet.what, unmet.remedy, cases=[case_of_node(module, unmet.node)]
                )
        for node in always_true_alternatives(module):
            yield self.finding(
                f"`{module.text_of(node)}` is always true: the text or number after `or` counts as true",
                'list the values: x in ("a", "b")',
                cases=[case_of_node(module, node)],
            )


def _cast_operand_in_words(module: Module, cast: ast.AST) -> str:
    """What a cast to `bool` is of, in the words of the code."""
    if not isinstance(cast, ast.Call):
        return "value"
    if isinstance(cast.func, ast.Attribute) and cast.func.attr in ("astype", "map", "apply"):
        return module.text_of(cast.func.value)
    return module.text_of(cast.args[0]) if cast.args else "value"


def _suggest_comparison(module: Module, cast: ast.AST) -> str:
    """What to write instead of a cast, in the words of the code: its own column and variable."""
    if isinstance(cast, ast.Call) and isinstance(cast.func, ast.Attribute):
        column = module.text_of(cast.func.value)
        return f'{column}.str.strip().str.lower().isin(["1", "true", "yes"])'
    if isinstance(cast, ast.Call) and len(cast.args) == 1:
        return f'{module.text_of(cast.args[0])}.strip().lower() in ("1", "true", "yes")'
    return 'text.strip().lower() in ("1", "true", "yes")'
