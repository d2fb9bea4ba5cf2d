"""Answers end with a stop token that is not in the loss.

## What it does
Takes the first batches of the real data loader and checks, after each supervised answer, the label of its stop token.
It is an error if none of the stop tokens is in the loss, and a warning if only some are. If the rows are not known, an
answer is a stretch of labels after a prompt that has none.

## Why it is bad
The model never learns to end its answer. The loss looks as good as ever, but every answer continues until the limit.
The usual cause is a collator that masks labels by the pad id, with a pad token that is the stop token.

## Example

```python
tokenizer.pad_token = tokenizer.eos_token
collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
ids = [{"input_ids": row["input_ids"]} for row in encoded(rows)]
run = transformers.Trainer(model, arguments(), collator, ids, processing_class=tokenizer)
```

## Use instead

```python
collator = transformers.DataCollatorForSeq2Seq(tokenizer)
run = transformers.Trainer(model, arguments(), collator, encoded(rows), processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: your code chooses the collator and the pad token. With another pad token, or a mask by
position, one more token per answer is in the loss.

## References

- huggingface/transformers#23530, huggingface/transformers#22794, huggingface/trl#976
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from truetune.auditing.audit import Sample
from truetune.checks.batch.evidence.answer_spans import answers_in_line, lines_with_unshifted_labels
from truetune.checks.batch.evidence.ends_of_labelled_stretches import ends_learned_without_stop
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import explain_missing_labels
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.render.rendering import Source

SHOWN_TOKENS = 6
"""Tokens shown before the stop token"""


class StopTokenNeverSupervised(BatchRule):
    code = "BAT001"
    fault = Fault.STOP_TOKEN_LEFT_OUT_OF_LOSS
    symptoms = ("never-stops",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_collator = True

    def findings(self) -> Iterator[Finding]:
        stops = self._stops_after_supervised_tokens
        masked = [(sample, i) for sample, i in stops if not sample.supervised[i]]
        if not masked:
            return
        every = len(masked) == len(stops)
        yield self.finding(
            f"{len(masked)} of {len(stops)} stop tokens after supervised answers are not in the"
            " loss",
            "mask padding by the attention mask and not by its id: use a collator that pads labels with -100"
            " (DataCollatorForSeq2Seq), and a pad token that is not a stop token",
            severity="error" if every else "warning",
            evidence=self._evidence_that_pad_is_stop(),
            cases=[
                Case(
                    f"{sample.place}: {sample.text(max(i - SHOWN_TOKENS, 0), i + 1)!r}, its last token"
                    " has the label -100"
                )
                for sample, i in masked[:MAX_CASES]
            ],
            count=len(masked),
            total=len(stops),
        )

    def _evidence_that_pad_is_stop(self) -> Iterator[str]:
        """Evidence: the pad token is a stop token, by which most collators that mask by id lose it."""
        pad = (self.subject.facts["tokenizer"] or {}).get("pad")
        collator = self.subject.facts["trainer"]["collator"]
        if pad in self.subject.stops:
            yield (
                f"the pad token is a stop token (id {pad}); the collator is {collator or 'unknown'}"
            )

    def unmet(self) -> Unmet | None:
        return super().unmet() or explain_missing_labels(
            self.subject, list(lines_with_unshifted_labels(self.subject))
        )

    def measurement_if_clean(self) -> Measurement:
        """How many stop tokens after supervised answers are in the loss."""
        learned = sum(
            bool(sample.supervised[i]) for sample, i in self._stops_after_supervised_tokens
        )
        return make_count_measurement(
            "stop tokens after supervised answers that are in the loss",
            learned,
            len(self._stops_after_supervised_tokens),
        )

    @cached_property
    def _stops_after_supervised_tokens(self) -> list[tuple[Sample, int]]:
        """Stop tokens behind a supervised token, in the loss or not."""
        known = [
            (sample, i)
            for sample in lines_with_unshifted_labels(self.subject)
            for i in _stops_after_supervised_in_line(sample, self.subject.stops)
        ]
        return known or self._masked_stops_by_labels_alone()

    def _masked_stops_by_labels_alone(self) -> list[tuple[Sample, int]]:
        """Stop tokens behind the answers of rows that are not recognised, where no label at all is one."""
        ends = ends_learned_without_stop(self.subject)
        # Some answers without any stop token: then the others' may be padding, and eos-not-appended says it.
        if any(end.masked_stop is None for end in ends):
            return []
        return [
            (end.sample, end.masked_stop)
            for end in ends
            if end.sample is not None and end.masked_stop is not None
        ]


def _stops_after_supervised_in_line(sample: Sample, stops: frozenset[int]) -> list[int]:
    """Stop tokens that follow a supervised token."""
    places = set(np.flatnonzero(sample.source == Source.STOP).tolist())
    places |= {answer.stop for answer in answers_in_line(sample, stops) if answer.stop is not None}
    return [i for i in sorted(places) if i and sample.supervised[i - 1] and not sample.padding[i]]
