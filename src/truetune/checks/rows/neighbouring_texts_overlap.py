"""Texts overlap: each begins with the end of the row before.

## What it does
Compares each plain text with the one before it in the file. It counts the texts that begin with 60 characters or more
that are the end of the text before. It fires from five such texts and a tenth of all. Texts that begin alike
(a heading, a licence) are no overlap.

## Why it is bad
The documents were cut into chunks with a stride that is smaller than the chunk, as a search index needs it. In training
the overlapping parts are learned twice in each epoch, an epoch takes longer by that share, and a random split puts one
copy into the evaluation set: the evaluation loss falls with memory alone.

## Example
```yaml
data:
  - {text: "The harbour opened in 1862. It was soon the largest of the coast, and it is the oldest that is left."}
  - {text: "It was soon the largest of the coast, and it is the oldest that is left. Ships came from the north."}
  - {text: "and it is the oldest that is left. Ships came from the north. They brought wool, fish and timber."}
  - {text: "Ships came from the north. They brought wool, fish and timber. The town grew by a half in ten years."}
  - {text: "They brought wool, fish and timber. The town grew by a half in ten years. A storm took the old bridge."}
  - {text: "The town grew by a half in ten years. A storm took the old bridge. The new one was made of iron."}
```

## Use instead
```yaml
data:
  - {text: "The harbour opened in 1862. It was soon the largest of the coast, and it is the oldest that is left."}
  - {text: "Ships came from the north. They brought wool, fish and timber."}
  - {text: "The town grew by a half in ten years. A storm took the old bridge. The new one was made of iron."}
```

## Fix safety
It is safe to cut the documents again without an overlap (stride equal to the length), or to give whole documents to a
trainer that packs them.

## References
- https://huggingface.co/docs/transformers/tasks/language_modeling (blocks without an overlap)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch

MIN_OVERLAP = 60
"""Characters that the end of one text and the beginning of the next have in common: a sentence may be there twice"""
# Chosen, not measured: a page header may be on the seam of a few rows.
MIN_SHARE, MIN_TEXTS = 0.1, 5
MAX_CHARACTERS = 20_000
"""Of the end of a text that is searched"""
SHOWN_CHARACTERS = 50


class NeighbouringTextsOverlap(DataRule):
    code = "ROW100"
    fault = Fault.ROWS_TRAINED_MORE_THAN_ONCE
    symptoms = ("odd-metrics",)
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.texts = self.overlapping = self.characters = self.repeated = 0
        self.before = ""
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Compare each text of a batch with the one before it."""
        for row in batch.rows:
            text = " ".join((row.text or "").split())
            if not text:
                self.before = ""
                continue
            self.texts += 1
            self.characters += len(text)
            overlap = _overlap(self.before, text)
            self.before = text[-MAX_CHARACTERS:]
            if not overlap:
                continue
            self.overlapping += 1
            self.repeated += overlap
            if len(self.cases) < MAX_CASES:
                shown = text[:SHOWN_CHARACTERS]
                self.cases.append(
                    case_in_row(
                        batch,
                        row,
                        f"the first {overlap:,} characters end the row before: {shown!r}",
                    )
                )

    def unmet(self) -> Unmet | None:
        """Unmet without two plain texts."""
        return (
            None if self.texts > 1 else Unmet("it is about rows of plain text, and there are none")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many texts begin with the end of the row before."""
        return make_count_measurement(
            "texts that begin with the end of the row before", self.overlapping, self.texts
        )

    def findings(self) -> Iterator[Finding]:
        if self.overlapping < max(MIN_TEXTS, MIN_SHARE * self.texts):
            return
        yield self.finding(
            f"{self.overlapping:,} of {self.texts:,} texts begin with the end of the row before:"
            f" {self.repeated / self.characters:.0%} of all characters are learned twice in each epoch",
            "cut the documents without an overlap (stride = length, chunk_overlap=0), or give whole documents and let"
            " the trainer pack them (packing=True)",
            cases=self.cases,
            count=self.overlapping,
            total=self.texts,
        )


def _overlap(before: str, text: str) -> int:
    """Characters at the end of one text with which the next begins; 0 for fewer than MIN_OVERLAP."""
    place = before.find(text[:MIN_OVERLAP], 1) if len(text) > MIN_OVERLAP else -1
    if place < 0:
        return 0
    end = before[place:]
    return len(end) if text.startswith(end) and len(end) < len(text) else 0
