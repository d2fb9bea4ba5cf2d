"""All rows have the same picture, though they ask and answer different things.

## What it does
Compares the pictures of the rows by their size in pixels, their length in bytes and their last 4 KiB. It fires if all
rows have the same pictures (16 rows or more) and give at least four different answers.

## Why it is bad
A loop that writes the rows took the same file for each, or saved one picture under all names. The answers describe
pictures that the model never sees: it learns to answer without looking.

## Example
```yaml
data:
  - {copies: 8, of: {image: {picture: [4, 4]}, instruction: "What is it?", output: A cat.}}
  - {copies: 8, of: {image: {picture: [4, 4]}, instruction: "Where is it?", output: In a tree.}}
  - {copies: 8, of: {image: {picture: [4, 4]}, instruction: "What is it?", output: Two cars.}}
  - {copies: 8, of: {image: {picture: [4, 4]}, instruction: "Where is it?", output: On a bridge.}}
```

## Use instead
```yaml
data:
  - {copies: 8, of: {image: {picture: [4, 4]}, instruction: "What is it?", output: A cat.}}
  - {copies: 8, of: {image: {picture: [5, 4]}, instruction: "Where is it?", output: In a tree.}}
  - {copies: 8, of: {image: {picture: [6, 4]}, instruction: "What is it?", output: Two cars.}}
  - {copies: 8, of: {image: {picture: [4, 4]}, instruction: "Where is it?", output: On a bridge.}}
```

## Fix safety
If all questions are about one picture (a map, a plan), nothing is wrong. Else write the rows again, each with its own.

## References
- https://huggingface.co/datasets/liuhaotian/LLaVA-Instruct-150K (a healthy set: a picture for each row)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import DataRule, Setup
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of

# Chosen, not measured: a data set on one plan or map has few questions, and few rows are no data set.
MIN_ROWS, MIN_ANSWERS = 16, 4


class OnePictureInAllRows(DataRule):
    code = "ROW304"
    fault = Fault.PICTURES_REACH_MODEL_WRONGLY
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = 0
        self.fingerprints: set[tuple[tuple[int, ...], ...]] = set()
        self.names: set[str] = set()
        self.answers: set[str] = set()
        self.case: Case | None = None

    def add_batch(self, batch: Batch) -> None:
        """Keep the first two of the rows' pictures, and the first answers."""
        for row, pictures in self.setup.pictures.pictures_of_rows(batch.rows):
            self.rows += 1
            # Two different ones settle it.
            if len(self.fingerprints) > 1:
                continue
            self.fingerprints.add(tuple(picture.fingerprint for picture in pictures))
            if len(self.names) < MIN_ROWS:
                self.names.add(pictures[0].name)
            if len(self.answers) < MIN_ANSWERS:
                answer = row.messages[-1].get("content") if row.messages else row.completion
                self.answers.add(text_of(answer).strip())
            self.case = self.case or Case(f"first: {pictures[0].name}", row.origin)

    def unmet(self) -> Unmet | None:
        """Unmet with few rows with pictures, or pictures that could not be read."""
        if self.rows < MIN_ROWS:
            return Unmet(f"it is about {MIN_ROWS} rows with pictures or more")
        if self.fingerprints and not all(map(all, self.fingerprints)):
            return Unmet("the pictures could not be read")
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many rows have pictures, not all the same."""
        same = self.rows if len(self.fingerprints) == 1 else 0
        return make_count_measurement("rows that all have one picture", same, self.rows)

    def findings(self) -> Iterator[Finding]:
        is_one = len(self.fingerprints) == 1 and all(map(all, self.fingerprints))
        if self.rows < MIN_ROWS or not is_one or len(self.answers) < MIN_ANSWERS:
            return
        names = f", under {len(self.names):,} names or more" if len(self.names) > 1 else ""
        yield self.finding(
            f"all {self.rows:,} rows with pictures have the same one{names}, and different answers",
            "look where the rows are written: each needs its own picture; if all questions are about one, change"
            " nothing",
            cases=[self.case] if self.case else (),
            count=self.rows,
            total=self.rows,
        )
