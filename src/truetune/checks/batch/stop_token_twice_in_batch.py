"""Answers end with two stop tokens.

## What it does
Checks in the real batches, after the stop token that ends an answer, whether the next token is a stop token too and in
the loss. It is an error in more than half of the answers, else a warning. If the given rows contain no stop token, the
trainer itself appends the second one (TRL's ORPO does, after templates that end turns with a new line): that is info if
the first one ends generation, and otherwise a warning.

## Why it is bad
The model learns to continue after the stop token. If the first one ends generation, the second is useless; if it does
not, every answer ends with extra tokens. It happens if a trainer appends EOS to text that already ends with it.

## Example

```python
text = [{"text": tokenizer.apply_chat_template(row["messages"], tokenize=False)} for row in rows]
run = sft(text)
```

## Use instead

```python
text = [{"text": tokenizer.apply_chat_template(row["messages"], tokenize=False).strip()} for row in rows]
run = sft(text)
```

## Fix safety
There is no automatic fix: give the trainer the messages, or text without EOS. A second stop token that the trainer
appends to messages can't be avoided, but is never reached if the first one ends generation.

## References

- huggingface/trl#3318, huggingface/trl#4481, unslothai/unsloth#3228
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import Sample
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule
from truetune.probe.texts_of_row import texts_in
from truetune.render.template_probes import ANSWER, QUESTION, alternating_chat
from truetune.settings.run_spec import Severity

SHOWN_TOKENS = 6


class StopTokenTwiceInBatch(BatchRule):
    code = "BAT021"
    fault = Fault.SPECIAL_TOKENS_DOUBLED_OR_MISPLACED
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    ended = 0
    """Supervised answers with a stop token"""

    def findings(self) -> Iterator[Finding]:
        stops = np.array(sorted(self._stop_ids_that_begin_nothing()), np.int64)
        own = self._count_template_stops_after_answer(stops)
        ends = [
            (sample, i)
            for sample in self.subject.samples
            for i in _first_stops_of_answers(sample, stops)
        ]
        double = [
            (sample, i) for sample, i in ends if _count_stops_in_a_row(sample, i, stops) > own
        ]
        # An answer may hold a stop token in its midst, and then has two ends: documents are what is
        # counted, unless more ends than documents are doubled.
        documents = {(sample.place, int(sample.documents[i])) for sample, i in ends}
        total = len(documents) if len(double) <= len(documents) else len(ends)
        self.ended = total
        if double:
            yield self._finding_on_doubled_stops(double, total)

    def _finding_on_doubled_stops(self, double: list[tuple[Sample, int]], total: int) -> Finding:
        """Answers that end with more stop tokens than the template writes.

        Args:
            double: lines, and the first stop token of each such answer.
            total: supervised answers with a stop token.
        """
        by_trainer = not self._may_rows_hold_stops()
        message = f"{len(double)} of {total} supervised answers end with two stop tokens"
        if by_trainer:
            message += ", the second of which the trainer appends"
        # Generation ends at the first one: the second does harm only where the first one does not
        # end it.
        ends_generation = all(int(sample.ids[i]) in self.subject.stops for sample, i in double)
        severity: Severity = "error" if 2 * len(double) > total else "warning"
        if by_trainer:
            severity = "info" if ends_generation else "warning"
        return self.finding(
            message,
            self._remedy_for_second_stop(by_trainer=by_trainer, ends=ends_generation),
            severity=severity,
            cases=[
                Case(f"{sample.place}: {sample.text(max(i - SHOWN_TOKENS, 0), i + 3)!r}")
                for sample, i in double
            ],
            count=len(double),
            total=total,
        )

    def _remedy_for_second_stop(self, *, by_trainer: bool, ends: bool) -> str:
        """What to do: it depends on who wrote the second token, and whether generation ends at the first."""
        if by_trainer and ends:
            return (
                "nothing to do: generation ends at the first stop token, so the second is never"
                " reached"
            )
        if by_trainer:
            return (
                "set eos_token_id in generation_config.json to the first of them, so that"
                " generation ends there"
            )
        return "give the trainer the messages instead of rendered text, or remove EOS from the end of the text"

    def _may_rows_hold_stops(self) -> bool:
        """Do the given rows themselves hold the text of a stop token, or are they not known?"""
        probes, rows = (
            self.subject.probes,
            [row for record in self.subject.records for row in record.rows],
        )
        texts = (
            [probes.tokenizer.backend.id_to_token(id) for id in self._stop_ids_that_begin_nothing()]
            if probes
            else []
        )
        encoded = any("input_ids" in row for row in rows)
        return (
            encoded
            or not rows
            or any(stop in text for row in rows for text in texts_in(row) for stop in texts if stop)
        )

    def _stop_ids_that_begin_nothing(self) -> set[Any]:
        """The stop ids of tokenizer and template, without a token that begins documents too."""
        tokenizer, probes = self.subject.facts["tokenizer"] or {}, self.subject.probes
        stops = {stop.id for stop in probes.stops} if probes else {tokenizer.get("eos")}
        return {stop for stop in stops if stop not in (None, tokenizer.get("bos"))}

    def _count_template_stops_after_answer(self, stops: NDArray[np.int64]) -> int:
        """How many the template itself writes behind the last answer: Phi-3's ends with two."""
        probes = self.subject.probes
        text = (probes.text(alternating_chat(QUESTION, ANSWER)) if probes else None) or ""
        if probes is None or ANSWER not in text:
            return 1
        tail = probes.tokenizer.backend.encode(
            text[text.rindex(ANSWER) :], add_special_tokens=False
        ).ids
        return max(int(np.isin(tail, stops).sum()), 1)

    def measurement_if_clean(self) -> Measurement:
        """How many supervised answers end with two stop tokens."""
        return make_count_measurement(
            "supervised answers that end with two stop tokens", 0, self.ended
        )


def _first_stops_of_answers(sample: Sample, stops: NDArray[np.int64]) -> list[int]:
    """Supervised stop tokens behind a supervised token that is neither a stop token nor white space behind one."""
    ends: list[int] = []
    # Closed: no text was learned since the last stop token. The line begins so, and each prompt
    # makes it so again.
    closed = True
    for i, (id, learned) in enumerate(
        zip(sample.ids.tolist(), sample.supervised.tolist(), strict=True)
    ):
        if id in stops:
            ends += [i] if learned and not closed else []
            closed = True
        elif not learned or sample.pieces[i].strip():
            closed = not learned
    return ends


def _count_stops_in_a_row(sample: Sample, place: int, stops: NDArray[np.int64]) -> int:
    """How many supervised stop tokens stand here, one behind the other but for white space."""
    count = 1
    for i in range(place + 1, len(sample.ids)):
        if sample.documents[i] != sample.documents[place] or not sample.supervised[i]:
            break
        if sample.ids[i] in stops:
            count += 1
        elif sample.text(i, i + 1).strip():
            break
    return count
