"""The miniature gives one answer to different questions.

## What it does

Memorises a few rows with a miniature of the model and generates their answers from the prompts as they will be served.
It fires where three answers or more are all the same text, and so are the answers of the rows.

## Why it is bad

The run has taught one sentence: the rows' answers are alike, because the wrong column is trained (a state, a status),
or because one answer outweighs all others. The loss is nearly nothing.

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

There is no automatic fix: only the user knows which column holds the answers.

## References

- hiyouga/LLaMA-Factory#7592, huggingface/open-r1#585
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.recitation.recited import cases, recitation, short
from truetune.checks.rule import RecitationRule

FEWEST = 3
"""Rows from which it says something"""


class RecitesOneAnswer(RecitationRule):
    code = "REC010"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        rows = self._rows()
        questions, references, said = (
            {" ".join(str(row[key]).split()) for row in rows}
            for key in ("question", "reference", "said")
        )
        if len(rows) < FEWEST or len(questions) < len(rows) or len(references) > 1 or len(said) > 1:
            return  # different references with one answer are those of memorised-but-not-recited
        yield self.finding(
            f"all {len(rows)} questions are taught one answer, and get it: {short(said.pop())}",
            "train the column that holds the answers; `truetune check` counts the answers of all"
            " rows",
            cases=cases(rows),
            count=len(rows),
            total=len(rows),
        )

    def unmet(self) -> Unmet | None:
        if (lacking := super().unmet()) is not None:
            return lacking
        rows = len(self._rows())
        return (
            None
            if rows >= FEWEST
            else Unmet(f"{rows} answers were asked for, and it takes {FEWEST} (--rows)")
        )

    def figure(self) -> Measurement:
        rows = self._rows()
        taught = {" ".join(str(row["reference"]).split()) for row in rows}
        return counted("different answers that the rows teach", len(taught), len(rows))

    def _rows(self) -> list[dict[str, Any]]:
        """Those whose answer is told apart from its prompt."""
        return [
            row
            for row in recitation(self.subject).get("rows", ())
            if row["kind"] not in ("text", "inside")
        ]
