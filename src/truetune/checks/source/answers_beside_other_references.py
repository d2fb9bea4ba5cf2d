"""Answers are compared with the references of other rows: only one side was sorted or shuffled.

## What it does
Follows the order of both sides of a comparison (`zip(answers, references)`, `compute(predictions=, references=)`, a
column added to a table, the scores of scikit-learn) back to where the rows are read. It fires if only one side went
through a sort, a shuffle, a set, a loader with `shuffle=True` or results in the order of their completion. Not
reported: code that sorts row numbers along (`sorted(enumerate(...))`, `argsort`), and files that neither generate text
nor score classes. The same fault: several answers for each prompt (`num_return_sequences`) in one list that is paired
with one reference for each prompt.

## Why it is bad
Each answer is compared with another row's reference. Exact match falls to chance, 0.02 or so, although every single
answer reads well, and the model gets blamed.

## Example
```python
from transformers import pipeline

pipe = pipeline("text-generation", model="model")
prompts = [row["prompt"] for row in rows]
references = [row["answer"] for row in rows]
prompts = sorted(prompts, key=len)
answers = [pipe(prompt)[0]["generated_text"] for prompt in prompts]
hits = sum(a == r for a, r in zip(answers, references))
```

## Use instead
```python
from transformers import pipeline

pipe = pipeline("text-generation", model="model")
rows = sorted(rows, key=lambda row: len(row["prompt"]))
prompts = [row["prompt"] for row in rows]
references = [row["answer"] for row in rows]
answers = [pipe(prompt)[0]["generated_text"] for prompt in prompts]
hits = sum(a == r for a, r in zip(answers, references))
```

## Fix safety
Sort whole rows before you take them apart, or sort row numbers and restore the order afterwards. Scores of earlier runs
are wrong: evaluate again.

## References
- hiyouga/LlamaFactory#3992, khanhptnk/bandit-nmt#4, greenelab/snorkeling#55, aidotse/LeakPro#315
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.lists_compared_row_by_row import (
    ListsTakenTogether,
    is_given_to_sklearn_score,
    lists_compared_row_by_row,
    one_side_is_generated,
)
from truetune.checks.source.evidence.orders_of_rows import RESTORES, RowOrders

GROUPS = re.compile(
    r"\[::|reshape|\.view\(|repeat|\* ?num_return|/ ?num_return|for _ in range\((?!len)|\]\[0\]|// ?\w+"
    r"|\[i \*|\* ?i\b"
)
"""Signs that the answers of one prompt are taken together, or the references repeated"""


class AnswersBesideOtherReferences(SourceRule):
    code = "SRC029"
    fault = Fault.ANSWERS_COMPARED_WITH_OTHER_REFERENCES
    severity = "error"
    looks_at = CodePlaces(
        "lists that are compared in files that generate", lists_compared_row_by_row
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on answers that are compared with the references of other rows."""
        yield from self._findings_on_several_answers_per_prompt()
        module = self.subject
        if module.mentions(*RESTORES):
            return
        order = RowOrders(module)
        for pair in lists_compared_row_by_row(module):
            finding = self._first_finding_if_one_side_is_reordered(order, pair)
            if finding is not None:
                yield finding

    def _first_finding_if_one_side_is_reordered(
        self, order: RowOrders, pair: ListsTakenTogether
    ) -> Finding | None:
        """The finding on the first side whose order is changed alone; None where both keep one order."""
        traces = [order.order_trace_of(side) for side in pair.sides]
        if not all(trace.begins_at_same_source_as(traces[0]) for trace in traces):
            return None
        changes = [trace.changes for trace in traces]
        for side, own in zip(pair.sides, changes, strict=True):
            alone = [node for node in own if not all(node in other for other in changes)]
            if alone and (
                is_given_to_sklearn_score(self.subject, pair)
                or one_side_is_generated(self.subject, pair)
            ):
                return self._finding_on_reordered_side(pair, side, min(alone, key=_line_number))
        return None

    def _findings_on_several_answers_per_prompt(self) -> Iterator[Finding]:
        """Findings on several answers for each prompt, in one list, which is paired with one
        reference for each prompt.
        """
        module = self.subject
        if GROUPS.search(module.text):
            return
        for call in generate_calls(module):
            count = module.flow.value(call.keywords.get("num_return_sequences"))
            if not isinstance(count, int) or count < 2:
                continue
            for pair in lists_compared_row_by_row(module):
                names = [side.id for side in pair.sides if isinstance(side, ast.Name)]
                if one_side_is_generated(module, pair) and not module.mentions(
                    *(f"{name}.append(" for name in names)
                ):
                    yield self.finding(
                        f"generate returns {count} answers for each prompt, one after another, but they are paired with"
                        f" the references one by one: answer {count + 1} belongs to row 2 and is compared with row"
                        f" {count + 1}",
                        f"take the {count} answers of row i together, answers[{count} * i : {count} * (i + 1)], or set"
                        " num_return_sequences=1",
                        cases=[case_of_node(module, pair.node), case_of_node(module, call.node)],
                    )
                    return

    def _finding_on_reordered_side(
        self, pair: ListsTakenTogether, side: ast.expr, change: ast.AST
    ) -> Finding:
        """The finding on a side whose order was changed, and not that of what it is compared with."""
        module = self.subject
        return self.finding(
            f"`{module.text_of(side)}` is in the order of {_name_of_reordering_call(change)}, and what it"
            " is compared with is not: answers meet the references of other rows",
            "sort or shuffle whole rows before you split them into prompts and references, or put the answers back"
            " into the original order",
            cases=[case_of_node(module, pair.node), case_of_node(module, change)],
        )


def _name_of_reordering_call(change: ast.AST) -> str:
    """The call that changes an order, as a message names it: `sorted(...)`."""
    assert isinstance(change, ast.Call)
    called = ast.unparse(change.func)
    return f"{called}(..., shuffle=True)" if "Loader" in called else f"{called}(...)"


def _line_number(node: ast.AST) -> int:
    """The line of a node; 0 where it has none."""
    return getattr(node, "lineno", 0)
