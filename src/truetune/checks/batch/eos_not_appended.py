"""Answers stand whole in the batch, and no stop token stands behind them.

## What it does

Looks at what follows the last answer of each document in the first batches: padding, another document or the end of the
line, and no stop token. Answers that were cut at the length limit are not counted. It fires where all supervised
answers lack it (error), or some (warning).

## Why it is bad

The model learns every word of its answers, and never that they end. It goes on until the limit, often with a question
of its own. The loss is as low as ever.

## Example

```python
made = [{key: values[:-2] for key, values in row.items()} for row in encoded(rows)]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), made,
                           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety

There is no automatic fix: the rows are made in the user's program.

## References

- huggingface/trl#1623, huggingface/transformers#22794
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.auditing.audit import Audit
from truetune.checks.batch.answers import Answer, all_answers, around, limit
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import MAX_CASES, BatchRule


class EosNotAppended(BatchRule):
    code = "TT002"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        most = limit(self.subject)
        ends = [answer for answer in all_answers(self.subject) if answer.last and answer.supervised.any()]
        open_ = [answer for answer in ends if answer.stop is None and not _cut(answer, most)]
        if not open_:
            return
        yield self.finding(
            f"{len(open_)} of {len(ends)} answers have no stop token behind them, and are not cut",
            "append the token that ends a turn to each answer, and give it a label: use the chat template of the "
            "tokenizer, or write tokenizer.eos_token behind the text",
            severity="error" if len(open_) == len(ends) else "warning",
            evidence=[f"tokens that end a turn: {_spelled(self.subject)}"],
            cases=[
                Case(f"{answer.sample.place}: the answer ends {around(answer.sample, answer.end - 1)}")
                for answer in open_[:MAX_CASES]
            ],
            count=len(open_),
            total=len(ends),
        )


def _cut(answer: Answer, most: int | None) -> bool:
    """Does the line end with the answer, at the limit or before the end of the row's own text?"""
    sample = answer.sample
    own = sample.documents == answer.document
    if own[answer.end :].any():
        return False
    if most is not None and int(own.sum()) >= most:
        return True
    return int(sample.field[answer.end - 1]) in sample.cut


def _spelled(audit: Audit) -> str:
    backend = audit.probes.tokenizer.backend if audit.probes else None
    names = sorted(f"{backend.id_to_token(stop)!r} ({stop})" if backend else str(stop) for stop in audit.stops)
    return ", ".join(names) or "none"
