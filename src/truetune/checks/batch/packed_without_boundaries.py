"""Several rows share a sequence of the batch, and nothing separates them.

## What it does
Finds sequences of the real batches that contain several rows (by the trainer's own lengths, or by their texts), and
checks what separates them for the model: positions that restart, lengths, a mask with document numbers. It warns if
there is nothing, or if it has no effect: an attention mask of ones makes the model ignore positions.

## Why it is bad
Each row is learned with an unrelated one before it, at positions where it never is in serving. The loss gets lower, not
higher. Plain text without prompts is not reported: joined documents are common in pretraining.

## Example

```python
run = sft(rows, packing=True, packing_strategy="wrapped", max_length=64)
```

## Use instead

```python
run = sft(rows, packing=True, packing_strategy="bfd", max_length=64)
```

## Fix safety
There is no automatic fix: pack with positions that restart (`padding_free=True`) and an attention that follows them
(flash attention), or turn packing off, which makes training slower.

## References

- huggingface/trl#3067, huggingface/trl#5316, huggingface/transformers#25452
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from truetune.auditing.audit import Sample
from truetune.checks.batch.evidence.documents_in_batch_lines import has_prompt_and_answer
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule
from truetune.probe.run_record import Arrays

FIRST_RELEASE_WITH_POSITIONS = (4, 53)
"""The first transformers whose masks follow positions that restart, where there is no attention mask"""


class PackedWithoutBoundaries(BatchRule):
    code = "BAT033"
    fault = Fault.PACKED_ROWS_NOT_SEPARATED
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        reasons = [
            (sample, self._why_rows_are_not_separated(sample))
            for sample in self._lines_of_several_rows
        ]
        open_ = [(sample, why) for sample, why in reasons if why]
        if open_:
            yield self.finding(
                f"{len(open_)} of {len(self.subject.samples)} sequences contain several rows that see each other:"
                f" {open_[0][1]}",
                "pack with position_ids that restart and without an attention mask (packing=True with"
                " padding_free=True), or set packing=False",
                cases=[
                    Case(f"{sample.place} contains {_count_documents(sample)} rows")
                    for sample, _ in open_
                ],
                count=len(open_),
                total=len(self.subject.samples),
            )

    def _why_rows_are_not_separated(self, sample: Sample) -> str:
        """Why the model does not see where a row ends; empty where it does."""
        # Lengths (flash attention) or a mask with document numbers part the rows for certain;
        # positions may.
        if set(sample.separated_by) - {"position_ids"}:
            return ""
        if not sample.separated_by:
            if sample.positions is not None:
                return "positions do not restart"
            return "there are no positions that restart"
        attention = self.subject.facts["model"]["attention"] or ""
        if "attention_mask" in self._batch_of(sample):
            return "an attention mask of ones overrides the positions that restart"
        # These take the borders from the positions themselves; for others a mask must be made of
        # them.
        reads_positions = attention.startswith(("flash", "kernels", "flex"))
        if not reads_positions and self._transformers_release() < FIRST_RELEASE_WITH_POSITIONS:
            return (
                f"{attention} attention in this transformers release ignores positions that restart"
            )
        return ""

    def _is_line_one_row_by_counts(self, sample: Sample) -> bool:
        """Is a line a single row, that only looks like several: are there as many prepared rows as
        given ones?
        """
        data = self.subject.facts["data"]
        rows_before, prepared = ((data[name] or {}).get("rows") for name in ("given", "prepared"))
        return not sample.separated_by and rows_before is not None and rows_before == prepared

    def _batch_of(self, sample: Sample) -> Arrays:
        """The micro-batch that a line is from."""
        record = next(
            record for record in self.subject.records if record.facts["rank"] == sample.rank
        )
        return record.batches[sample.batch]

    def _transformers_release(self) -> tuple[int, ...]:
        """Major and minor number of transformers; one that is not known counts as new, so that nothing is told."""
        numbers = str(self.subject.facts["versions"].get("transformers") or "999").split(".")[:2]
        return tuple(int(number) for number in numbers if number.isdigit())

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None or self._lines_of_several_rows:
            return lacking
        if any(_count_documents(sample) > 1 for sample in self.subject.samples):
            return Unmet(
                "it is about several chats in a sequence; here each sequence is one row, or plain text"
            )
        return Unmet("it is about sequences that contain several rows, and none does")

    def measurement_if_clean(self) -> Measurement:
        """How many lines of several rows the model sees as several."""
        lines = len(self._lines_of_several_rows)
        return make_count_measurement(
            "sequences of several rows that the model sees as several", lines, lines
        )

    @cached_property
    def _lines_of_several_rows(self) -> list[Sample]:
        """Lines of several rows that are prompts with answers."""
        ends = self.subject.stops | {(self.subject.facts["tokenizer"] or {}).get("pad")}
        return [
            sample
            for sample in self.subject.samples
            if _count_documents(sample) > 1
            and has_prompt_and_answer(sample, 0, len(sample.ids), ends)
            and not self._is_line_one_row_by_counts(sample)
        ]


def _count_documents(sample: Sample) -> int:
    """How many documents stand in the line; a KTO prompt with the answer of another row is one."""
    return 1 if sample.side == "kl" else int(sample.documents.max(initial=0)) + 1
