"""A score compares answers with labels so that wrong answers count as right, or right ones never do.

## What it does
Looks for comparisons of a model's text with labels that are known: the values of a column in a file beside the script,
or constants. A text is a model's where a symbolic run of the script says so, or else by its name (`prediction`,
`answer`), which is a warning. It speaks where one label is in another (`"valid" in answer`,
`answer.startswith("1")`), where a label is tried before a longer one that holds it, and where only the answer goes
through `lower()` or `strip()` and labels have capitals or blanks. The letter of an option that is looked for anywhere
in an answer (`"ABCD"[i] in reply`) is a warning too, unless answers have a few tokens at most. Right answers among the
first rows that are divided by the number of all rows are named too.

## Why it is bad
An answer "invalid" counts as right where "valid" is expected, so a model that always gives the longer label scores
well. With one side in lower case, labels with capitals are never met, and the score of a good model is that of a bad
one.

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
