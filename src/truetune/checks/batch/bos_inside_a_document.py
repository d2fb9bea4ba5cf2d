"""A BOS token is between a prompt and its answer.

## What it does
Looks in the real batches for a BOS token before an answer, or between two texts of one row, where the template does not
write one. A BOS after a stop token, where another document begins, is not reported.

## Why it is bad
BOS means that nothing came before: the model learns to answer after a break that is not there in serving. It happens if
prompt and answer are tokenized separately, as in hand-written preference data.

## Example

```python
tokenizer.bos_token = "<|endoftext|>"
data = encoded(rows)
for row in data:
    start = next(i for i, label in enumerate(row["labels"]) if label != -100)
    for key in row:
        row[key] = [*row[key][:start], tokenizer.bos_token_id, *row[key][start:]]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), data,
                           processing_class=tokenizer)
```

## Use instead

```python
tokenizer.bos_token = "<|endoftext|>"
data = encoded(rows)
for row in data:
    row["input_ids"], row["labels"] = [tokenizer.bos_token_id, *row["input_ids"]], [-100, *row["labels"]]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), data,
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: tokenize the answer with `add_special_tokens=False`, or prompt and answer in one text.

## References

- axolotl-ai-cloud/axolotl#1616, huggingface/trl#1073, huggingface/trl#1025
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.audit import Audit, Sample
from truetune.checks.batch.evidence.documents_in_batch_lines import document_spans
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import NO_BOS, NO_TOKENIZER
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule
from truetune.render.rendering import Source
from truetune.render.template_probes import alternating_chat

SHOWN_TOKENS = 5


class BosInsideADocument(BatchRule):
    code = "BAT020"
    fault = Fault.SPECIAL_TOKENS_DOUBLED_OR_MISPLACED
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        tokenizer = self.subject.facts["tokenizer"] or {}
        bos = tokenizer.get("bos")
        if (
            bos is None
            or bos in (tokenizer.get("pad"), *self.subject.stops)
            or _does_template_write_inner_bos(self.subject)
        ):
            return
        places = [
            (sample, i)
            for sample in self.subject.samples
            for i in _inner_bos_places(sample, bos, self.subject.stops)
        ]
        if places:
            lines = len({id(sample) for sample, _ in places})
            yield self.finding(
                f"{lines} of {len(self.subject.samples)} sequences have a BOS token (id {bos}) between"
                " prompt and answer",
                "tokenize answers with add_special_tokens=False, or prompt and answer in one text",
                cases=[
                    Case(f"{sample.place}: {sample.text(i - SHOWN_TOKENS, i + SHOWN_TOKENS)!r}")
                    for sample, i in places
                ],
                count=lines,
                total=len(self.subject.samples),
            )

    def unmet(self) -> Unmet | None:
        tokenizer = self.subject.facts["tokenizer"]
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if tokenizer is None:
            return NO_TOKENIZER
        bos = tokenizer.get("bos")
        if bos is None:
            return NO_BOS
        if bos in (tokenizer.get("pad"), *self.subject.stops):
            return Unmet(
                "it is about a BOS that only begins text, and this one pads or ends it too"
            )
        return (
            Unmet("it is about templates that write BOS once")
            if _does_template_write_inner_bos(self.subject)
            else None
        )

    def measurement_if_clean(self) -> Measurement:
        """How many lines have a BOS token between prompt and answer."""
        return make_count_measurement(
            "sequences with a BOS token between prompt and answer", 0, len(self.subject.samples)
        )


def _does_template_write_inner_bos(audit: Audit) -> bool:
    """Does the template write BOS in other places than the start?"""
    if audit.probes is None or "bos" not in audit.probes.tokenizer.special:
        return False
    bos = audit.probes.tokenizer.special["bos"].token
    text = (
        audit.probes.text([*alternating_chat("one", "two"), *alternating_chat("three", "four")])
        or ""
    )
    return bos in text[1:]


def _inner_bos_places(sample: Sample, bos: int, stops: frozenset[int]) -> Iterator[int]:
    """BOS where an answer begins, or between texts of the same row."""
    for start, end in document_spans(sample):
        for i in np.flatnonzero(sample.ids[start + 1 : end - 1] == bos) + start + 1:
            # Behind a stop token another document may begin; behind BOS it is bos-twice-in-batch's.
            if int(sample.ids[i - 1]) in (*stops, bos):
                continue
            begins = sample.supervised[i + 1] and not sample.supervised[start:i].any()
            if (
                begins
                or sample.source[i + 1] == Source.ASSISTANT
                or _is_within_one_row(sample, start, int(i), end)
            ):
                yield int(i)


def _is_within_one_row(sample: Sample, start: int, place: int, end: int) -> bool:
    """Are the texts on both sides of a place those of one row? Else documents that nothing parts meet there."""
    before = {sample.fields[f].row for f in sample.field[start:place].tolist() if f >= 0}
    after = {sample.fields[f].row for f in sample.field[place:end].tolist() if f >= 0}
    return len(before | after) == 1 and before == after
