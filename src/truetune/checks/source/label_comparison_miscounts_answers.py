"""A score compares answers with labels so that wrong answers count as right, or right ones never do.

## What it does
Looks for comparisons of a model's text with known labels: the values of a column in a file next to the script, or
constants. It is an error if a symbolic run of the script shows that the text is a model's, and a warning if only its
name says so (`prediction`, `answer`). It fires if one label is contained in another (`"valid" in answer`,
`answer.startswith("1")`), if a label is tried before a longer one that contains it, and if only the answer goes through
`lower()` or `strip()` while labels have capitals or blanks. The letter of an option searched anywhere in an answer
(`"ABCD"[i] in reply`) is a warning, unless answers have only a few tokens. It also reports right answers among the
first rows that are divided by the number of all rows.

## Why it is bad
The answer "invalid" counts as right if "valid" is expected, so a model that always gives the longer label scores well.
With only one side in lower case, labels with capitals never match, and a good model gets the score of a bad one.

## Example
```python
from transformers import pipeline

LABELS = ["valid", "invalid"]
pipe = pipeline("text-generation", model="model")

def read_label(prompt):
    text = pipe(prompt)[0]["generated_text"]
    for label in LABELS:
        if label in text:
            return label
```

## Use instead
```python
from transformers import pipeline

LABELS = ["invalid", "valid"]
pipe = pipeline("text-generation", model="model")

def read_label(prompt):
    text = pipe(prompt)[0]["generated_text"]
    for label in LABELS:
        if label in text:
            return label
```

## Fix safety
There is no automatic fix. The score changes, and can't be compared with earlier ones of the same script.

## References
- EleutherAI/lm-evaluation-harness, `exact_match` (`ignore_case`, applied to both sides)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.labels_searched_inside_answers import (
    find_label_inside_another,
    find_letter_inside_answers,
)
from truetune.checks.source.evidence.wrong_label_matches import wrong_matches
from truetune.source.parsed_source_file import Module


def _comparisons_and_shares(module: Module) -> Iterator[ast.AST]:
    """Comparisons of texts, and shares of comparisons."""
    yield from module.nodes(ast.Compare)
    for call in module.methods("startswith"):
        yield call.node
    for node in module.nodes(ast.BinOp):
        if isinstance(node.op, ast.Div):
            yield node


class LabelComparisonMiscountsAnswers(SourceRule):
    code = "SRC185"
    fault = Fault.WRONG_ANSWERS_COUNTED_RIGHT
    symptoms = ("odd-metrics",)
    severity = "error"
    looks_at = CodePlaces("comparisons and shares", _comparisons_and_shares)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        proved = list(wrong_matches(module))
        for found in proved:
            yield self.finding(found.what, found.remedy, cases=[case_of_node(module, found.node)])
        known = [found.node for found in proved]
        for named in (find_label_inside_another(module), find_letter_inside_answers(module)):
            if named is None or named.node in known:
                continue
            known.append(named.node)
            yield self.finding(
                named.what,
                named.remedy,
                severity="warning",
                cases=[case_of_node(module, named.node)],
            )
