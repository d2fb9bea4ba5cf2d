"""The miniature gives the same answer to different questions.

## What it does
Trains a miniature of the model (same architecture, few weights) until it has memorised a few rows, and generates their
answers from the prompts as in serving. It fires if three answers or more are all the same text, and so are the answers
of the rows.

## Why it is bad
The run has taught one sentence: the rows' answers are alike, because the wrong column is used (a state, a status), or
because one answer outweighs all others. The loss is almost zero.

## Example

```python
rows = [{"problem": f"How many {fruit} are there?", "state": "CONCLUDE", "training_text": f"There are {i} {fruit}."}
        for i, fruit in enumerate(["apples", "pears", "plums", "figs"])]
given = datasets.Dataset.from_list(rows)
run = sft([{"prompt": [{"role": "user", "content": row["problem"]}],
            "completion": [{"role": "assistant", "content": row["state"]}]} for row in rows])
```

## Use instead

```python
rows = [{"problem": f"How many {fruit} are there?", "state": "CONCLUDE", "training_text": f"There are {i} {fruit}."}
        for i, fruit in enumerate(["apples", "pears", "plums", "figs"])]
given = datasets.Dataset.from_list(rows)
run = sft([{"prompt": [{"role": "user", "content": row["problem"]}],
            "completion": [{"role": "assistant", "content": row["training_text"]}]} for row in rows])
```

## Fix safety
There is no automatic fix: only you know which column has the answers. Map that one; the loss is then higher at first.

## References

- hiyouga/LLaMA-Factory#7592, huggingface/open-r1#585
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.recitation.recitation_record import (
    KINDS_WITHOUT_ANSWER,
    RecitedAnswer,
    cases_of_recited_answers,
    read_recitation,
)
from truetune.checks.rule import RecitationRule
from truetune.checks.shorten_text import quote_shortened

# Chosen, not measured: two rows of sound data may have one answer (yes, no). Six rows are asked, so double would ask
# for all of them.
MIN_ROWS = 3


class RecitesOneAnswer(RecitationRule):
    code = "REC010"
    fault = Fault.ONE_ANSWER_FOR_ALL_QUESTIONS
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        rows = self._rows_with_separable_answer()
        questions = _distinct_texts(row["question"] for row in rows)
        references = _distinct_texts(row["reference"] for row in rows)
        given_answers = _distinct_texts(row["said"] for row in rows)
        if len(rows) < MIN_ROWS or len(questions) < len(rows):
            return
        # Different references with one answer are those of memorised-but-not-recited.
        if len(references) > 1 or len(given_answers) > 1:
            return
        yield self.finding(
            f"all {len(rows)} questions have the same answer in training, and get it:"
            f" {quote_shortened(given_answers.pop())}",
            "map the column with the answers to the answer (formatting function or data settings);"
            " `truetune check DATA` counts the answers of all rows",
            cases=cases_of_recited_answers(rows),
            count=len(rows),
            total=len(rows),
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where too few answers were asked for."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        rows = len(self._rows_with_separable_answer())
        if rows >= MIN_ROWS:
            return None
        return Unmet(f"{rows} answers were asked for, and it takes {MIN_ROWS} (--rows)")

    def measurement_if_clean(self) -> Measurement:
        """How many different answers the rows teach."""
        rows = self._rows_with_separable_answer()
        references = _distinct_texts(row["reference"] for row in rows)
        return make_count_measurement("different answers in the rows", len(references), len(rows))

    def _rows_with_separable_answer(self) -> list[RecitedAnswer]:
        """The rows whose answer is told apart from its prompt, learned or not: one sentence may be
        all that they teach.
        """
        return [
            row
            for row in read_recitation(self.subject).get("rows", ())
            if row["kind"] not in KINDS_WITHOUT_ANSWER
        ]


def _distinct_texts(texts: Iterable[str]) -> set[str]:
    """The different texts among these, white space aside."""
    return {" ".join(str(text).split()) for text in texts}
