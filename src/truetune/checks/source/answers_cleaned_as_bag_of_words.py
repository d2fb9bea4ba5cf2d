"""The answers of training rows are cleaned as for a bag of words: they lose stop words, endings or punctuation.

## What it does
Follows the texts that a script uses as answers (turns of the assistant, `output`, `completion`, `response`, `chosen`)
to the functions that clean them, also through a column (`df["reply"] = df["reply"].apply(clean)`). It is an error if
these remove stop words (NLTK, spaCy, scikit-learn, gensim) or stem words, and a warning if they remove all punctuation
together with capitals or digits. `lower()` or removed punctuation without the other is not reported: rows for speech or
search may want it. Nor is an answer that is a label, or a text that is in the prompt as well: there the cleaned text is
the task.

## Why it is bad
Such cleaning was made for counting words. The model learns to write what it is trained on: words without articles,
commas and numbers, whatever it is asked.

## Example
```python
import json
from nltk.corpus import stopwords

STOP = set(stopwords.words("english"))

def clean(text):
    return " ".join(word for word in text.lower().split() if word not in STOP)

def write(rows, out):
    for row in rows:
        turns = [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": clean(row["reply"])}]
        out.write(json.dumps({"messages": turns}) + "\\n")
```

## Use instead
```python
import json

def write(rows, out):
    for row in rows:
        turns = [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["reply"].strip()}]
        out.write(json.dumps({"messages": turns}) + "\\n")
```

## Fix safety
Rebuild the rows from the raw file and train again: what was removed is in no row.

## References
- NLTK book, chapter 2 (stop words); Manning et al. 2008, Introduction to Information Retrieval, 2.2
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
from truetune.checks.source.evidence.prompt_forms import trains_a_model
from truetune.checks.source.evidence.training_answers_cleaned_for_word_counts import (
    answer_texts_of_rows,
    answers_cleaned_before_training,
)
from truetune.source.parsed_source_file import Module

WRITING_METHODS = (
    "to_json",
    "to_csv",
    "to_parquet",
    "save_to_disk",
    "push_to_hub",
    "write_all",
    "writerow",
)
LABELS = re.compile(r"label|class|categor|intent|sentiment|topic|emotion", re.IGNORECASE)
"""Names of texts that are labels: one spelling of each is what a training wants"""
SURE = frozenset(("stop words", "endings of words"))
"""What no answer is cleaned of on purpose"""


def _answers_built(module: Module) -> list[object]:
    """The answers that a script builds, where it trains or writes rows."""
    writes = any(module.calls("json.dump", "json.dumps")) or any(module.methods(*WRITING_METHODS))
    return list(answer_texts_of_rows(module)) if writes or trains_a_model(module) else []


def _other_texts_of_row(module: Module, answer: ast.AST) -> set[str]:
    """The texts of the row that an answer belongs to, without its own."""
    rows = [
        one for one in module.parents(answer) if isinstance(one, ast.Dict | ast.List | ast.Tuple)
    ]
    is_turn = len(rows) > 1 and isinstance(rows[1], ast.List | ast.Tuple)
    row = rows[1] if is_turn else next(iter(rows), None)
    parts = list(ast.iter_child_nodes(row)) if row is not None else []
    own = {answer, *module.parents(answer)}
    return {
        text
        for part in parts
        if part not in own
        for text in _row_fields_and_loop_texts_in(module, part)
    }


def _row_fields_and_loop_texts_in(module: Module, node: ast.AST) -> set[str]:
    """The fields of a row (`row["text"]`) and the texts of a loop of which an expression is made."""
    inside = list(ast.walk(node))
    fields = {
        ast.unparse(one)
        for one in inside
        if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Constant)
    }
    texts = _names_loops_bind_to_texts(module)
    return fields | {one.id for one in inside if isinstance(one, ast.Name) and one.id in texts}


def _names_loops_bind_to_texts(module: Module) -> set[str]:
    """The names that loops bind to texts."""
    targets = (part for loop in module.nodes(ast.For) for part in ast.walk(loop.target))
    bound = {part.id for part in targets if isinstance(part, ast.Name)}
    # A name that is read by keys is a row and no text.
    rows = {one.value.id for one in module.nodes(ast.Subscript) if isinstance(one.value, ast.Name)}
    return bound - rows


class AnswersCleanedAsBagOfWords(SourceRule):
    code = "SRC307"
    fault = Fault.TRAINING_ANSWERS_DAMAGED
    symptoms = ("garbage-output",)
    severity = "error"
    looks_at = CodePlaces("answers of rows that a script builds", _answers_built)

    def findings(self) -> Iterator[Finding]:
        """Findings on answers of training rows that are cleaned as texts for a bag of words are."""
        module = self.subject
        if not _answers_built(module):
            return
        for one in answers_cleaned_before_training(module):
            steps = set(one.steps)
            if not steps & SURE and not {"punctuation", "capitals"} <= steps:
                continue
            cleaned = _row_fields_and_loop_texts_in(module, one.place)
            if any(LABELS.search(text) for text in cleaned) or cleaned & _other_texts_of_row(
                module, one.answer
            ):
                continue
            cases = [case_of_node(module, one.place)]
            if one.answer is not one.place:
                cases.append(case_of_node(module, one.answer))
            yield self.finding(
                f"answers are cleaned before training: {' and '.join(one.steps)} are removed, and the model learns to"
                " write texts without them",
                "use the raw text of the answers (strip() at most): remove this cleaning, build the rows again, and"
                " train again",
                severity="error" if steps & SURE else "warning",
                cases=cases,
            )
            return  # one cleaning is one cause, however many rows are built with it
