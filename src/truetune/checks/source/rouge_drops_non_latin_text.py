"""ROUGE uses its English tokenizer on texts in another script: no word is left to compare.

## What it does
Finds `rouge_score.rouge_scorer.RougeScorer(...)` and `evaluate.load("rouge").compute(...)` without a `tokenizer`, if
most of the scored texts (columns that the script reads) contain neither a-z nor digits.

## Why it is bad
rouge_score lowercases the text and deletes everything except a-z and 0-9. Texts in Chinese, Japanese, Arabic or
Cyrillic letters become empty: identical texts score 0, and other scores come only from numbers and Latin names.

## Example
```python
from rouge_score import rouge_scorer

rows = [
    {"reference": "第三季度营收增长。", "prediction": "第三季度营收增长。"},
    {"reference": "明年新建三条地铁。", "prediction": "明年新建地铁。"},
    {"reference": "新电池充电更快。", "prediction": "新电池充电更快。"},
    {"reference": "今天下雨。", "prediction": "今天下雨。"},
]
scorer = rouge_scorer.RougeScorer(["rougeL"])
scores = [scorer.score(row["reference"], row["prediction"])["rougeL"].fmeasure for row in rows]
```

## Use instead
```python
from rouge_score import rouge_scorer

rows = [
    {"reference": "第三季度营收增长。", "prediction": "第三季度营收增长。"},
    {"reference": "明年新建三条地铁。", "prediction": "明年新建地铁。"},
    {"reference": "新电池充电更快。", "prediction": "新电池充电更快。"},
    {"reference": "今天下雨。", "prediction": "今天下雨。"},
]


class Characters:
    def tokenize(self, text):
        return [one for one in text if not one.isspace()]


scorer = rouge_scorer.RougeScorer(["rougeL"], tokenizer=Characters())
scores = [scorer.score(row["reference"], row["prediction"])["rougeL"].fmeasure for row in rows]
```

## Fix safety
There is no automatic fix: characters, words (jieba, MeCab) and chrF give different scores. Report which one you use,
and score earlier models again.

## References
- google-research/google-research, rouge/tokenize.py (`NON_ALPHANUM_RE = [^a-z0-9]+`), rouge/rouge_scorer.py
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
from truetune.checks.source.evidence.scored_rows import ScoredRows, rows_with_text_columns
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

SCORERS = ("rouge_score.rouge_scorer.RougeScorer", "rouge_scorer.RougeScorer")
KEPT = re.compile(r"[a-z0-9]", re.I)
"""What the default tokenizer leaves of a text"""
IS_SCORED = re.compile(r"ref|gold|target|summar|answer|label|pred|output|completion|response", re.I)
"""Columns of texts that are compared"""
# Chosen, not measured: three texts are an example; numbers and names stand in some texts of any language.
MIN_TEXTS, MOST = 4, 0.5


def _rouge_calls(module: Module) -> Iterator[Call]:
    """Scorers of ROUGE."""
    yield from module.calls(*SCORERS)
    for call in module.methods("compute"):
        load = module.flow.producing_call(call.receiver)
        if load is None or not load.named("evaluate.load", "datasets.load_metric"):
            continue
        if load.args and module.flow.value(load.args[0]) == "rouge":
            yield call


class RougeDropsNonLatinText(SourceRule):
    code = "SRC303"
    fault = Fault.METRIC_GETS_WRONG_INPUTS
    symptoms = ("odd-metrics",)
    severity = "error"
    looks_at = CodePlaces(
        "ROUGE scorers", lambda module: (call.node for call in _rouge_calls(module))
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in _rouge_calls(module):
            if not call.lacks("tokenizer", 3):
                continue
            for column in _scored_columns_named_in_script(module):
                rows = rows_with_text_columns(module, (column,))
                texts = _texts_of_column(rows, column)
                empty = [text for text in texts if not KEPT.search(text)]
                if rows is None or len(texts) < MIN_TEXTS or len(empty) < MOST * len(texts):
                    continue
                yield self.finding(
                    f"ROUGE's default tokenizer deletes everything except a-z and 0-9, which leaves nothing of"
                    f" {len(empty)} of {len(texts)} texts of `{column}`: they score 0, even if prediction and reference"
                    " are equal",
                    "pass a tokenizer: RougeScorer([...], tokenizer=T()), where T.tokenize(text) returns the words"
                    " (jieba, MeCab) or the characters, list(text); or compute chrF",
                    evidence=[f"rows of {rows.source}", f"one such text begins: {empty[0][:40]!r}"],
                    cases=[case_of_node(module, call.node)],
                )
                return


def _scored_columns_named_in_script(module: Module) -> list[str]:
    """The columns of scored texts that a script names, each once."""
    values = dict.fromkeys(node.value for node in module.nodes(ast.Constant))
    texts = (value for value in values if isinstance(value, str))
    return [text for text in texts if text.isidentifier() and IS_SCORED.search(text)]


def _texts_of_column(rows: ScoredRows | None, column: str) -> list[str]:
    """The texts of a column that are not empty."""
    values = [row.get(column, "") for row in rows.rows] if rows is not None else []
    return [text for text in values if text.strip()]
