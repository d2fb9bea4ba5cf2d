"""Answers are cut off at the length limit.

## What it does
Counts the sequences of the real batches that are exactly as long as the limit (the trainer's argument, else the length
that many sequences share) and whose last token is a supervised part of an answer, not its stop token. It is an error if
more than 20 % of the answers are cut off, else a warning. Sequences longer than the limit are a warning too: the limit
is not applied.

## Why it is bad
Answers that are cut off teach the model to stop in the middle, or never. The limit is often a default that nobody chose
(1024 in TRL).

## Example

```python
run = sft(rows, max_length=30)
```

## Use instead

```python
run = sft(rows, max_length=128)
```

## Fix safety
There is no automatic fix: raise `max_length`, which takes more memory, or remove the long rows.

## References

- huggingface/trl#2400, huggingface/trl#6003, unslothai/unsloth#2904
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from truetune.auditing.audit import Sample
from truetune.checks.batch.evidence.answer_spans import length_limit_and_is_explicit
from truetune.checks.batch.evidence.documents_in_batch_lines import (
    are_batches_packed,
    document_spans,
    has_prompt_and_answer,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule

# As in `length_limit_and_is_explicit`: two lines of one length may be chance.
MIN_LINES_AT_LIMIT = 3
"""So many lines of one length, none longer, stand for a limit"""
# Chosen, not measured: from every fifth answer on, to stop in the middle is common enough to be
# learned.
ERROR_SHARE = 0.2
"""Share of the answers from which cuts are an error"""
SHOWN_TOKENS = 12


class AnswersCutInBatch(BatchRule):
    code = "BAT022"
    fault = Fault.TRAINING_ROWS_CUT
    symptoms = ("never-stops", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        limit, is_named = length_limit_and_is_explicit(self.subject)
        if limit is None:
            return
        cut = [
            (sample, end)
            for sample, start, end in self._spans_with_prompt_and_answer
            if end - start == limit and self._is_text_supervised_after_last_stop(sample, start, end)
        ]
        if cut and (
            is_named or self._is_shared_length_a_limit(len(cut), {id(sample) for sample, _ in cut})
        ):
            yield self._report_cut_answers(cut, limit, is_named)
        # Packed lines are as long as they are packed; the limit is that of their documents.
        if is_named and not are_batches_packed(self.subject):
            yield from self._report_longer_lines(limit)

    def _report_cut_answers(
        self, cut: list[tuple[Sample, int]], limit: int, is_named: bool
    ) -> Finding:
        """The finding on answers that end at the limit; each is given with its line and one past
        its last token.
        """
        total = len(self._spans_with_prompt_and_answer)
        evidence = []
        if not is_named:
            evidence = [f"no argument sets a limit; {len(cut)} sequences share the length {limit}"]
        return self.finding(
            f"{len(cut)} of {total} answers of the batches are cut off at {limit} tokens,"
            " before they stop",
            f"set max_length above {limit}, or remove the rows that do not fit (truetune check DATA -t TOKENIZER"
            f" --max-length {limit} lists them)",
            severity="error" if len(cut) > ERROR_SHARE * total else "warning",
            evidence=evidence,
            cases=[
                Case(f"{sample.place} ends with {sample.text(end - SHOWN_TOKENS, end)!r}")
                for sample, end in cut
            ],
            count=len(cut),
            total=total,
        )

    def _report_longer_lines(self, limit: int) -> Iterator[Finding]:
        """A finding on lines that are longer than a limit that the settings name, if there are any."""
        longer = [
            (sample, end - start)
            for sample, start, end in self._document_spans
            if end - start > limit
        ]
        if longer:
            yield self.finding(
                f"{len(longer)} of {len(self._document_spans)} sequences are longer than the limit of"
                f" {limit} tokens, which is not applied",
                "truncate or remove long rows where they are tokenized: the trainer uses prepared"
                " rows as they are",
                severity="warning",
                cases=[Case(f"{sample.place}: {length} tokens") for sample, length in longer],
                count=len(longer),
                total=len(self._document_spans),
            )

    def _is_shared_length_a_limit(self, cut: int, lines: set[int]) -> bool:
        """No setting names a limit: is it one nevertheless, or do lines share a length by chance?

        All lines have it, or other answers stop; and of the rows in these lines, where they are known, a part is
        missing.

        Args:
            cut: answers that are as long as the longest.
            lines: `id` of each of their lines.
        """
        if cut < MIN_LINES_AT_LIMIT:
            return False
        stops = list(self.subject.stops)
        others = [
            answer for answer in self._spans_with_prompt_and_answer if id(answer[0]) not in lines
        ]
        ended = any(np.isin(sample.ids[start:end], stops).any() for sample, start, end in others)
        whole = [
            sample
            for sample, _, _ in self._spans_with_prompt_and_answer
            if id(sample) in lines and sample.fields and not sample.cut
        ]
        return (ended or not others) and not whole

    def _is_text_supervised_after_last_stop(self, sample: Sample, start: int, end: int) -> bool:
        """Is there supervised text behind the last stop token?"""
        stops = np.flatnonzero(np.isin(sample.ids[start:end], list(self.subject.stops)))
        behind = start + int(stops[-1]) + 1 if len(stops) else start
        return bool(sample.supervised[end - 1]) and bool(sample.text(behind, end).strip())

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if length_limit_and_is_explicit(self.subject)[0] is None:
            return Unmet(
                "it is not known at which length rows are cut", "set the limit (max_length)"
            )
        return (
            None
            if self._spans_with_prompt_and_answer
            else Unmet("it is about prompts with answers, and no line is known to hold one")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many answers are cut at the length limit."""
        limit, known = length_limit_and_is_explicit(self.subject)
        more = "" if known else "; no argument names a limit"
        return make_count_measurement(
            f"answers that are cut off at {limit} tokens",
            0,
            len(self._spans_with_prompt_and_answer),
            more,
        )

    @cached_property
    def _document_spans(self) -> list[tuple[Sample, int, int]]:
        """(line, first token, one past the last) of each document."""
        return [
            (sample, *document)
            for sample in self.subject.samples
            for document in document_spans(sample)
        ]

    @cached_property
    def _spans_with_prompt_and_answer(self) -> list[tuple[Sample, int, int]]:
        """(line, first token, one past the last) of each document with something to learn and
        something to read.
        """
        ends = self.subject.stops | {(self.subject.facts["tokenizer"] or {}).get("pad")}
        return [
            (sample, start, end)
            for sample, start, end in self._document_spans
            if has_prompt_and_answer(sample, start, end, ends)
        ]
