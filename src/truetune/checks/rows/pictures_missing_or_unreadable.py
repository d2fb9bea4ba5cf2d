"""Pictures of the rows are missing, are no pictures, or end too early.

## What it does
Opens each picture that the rows name or hold, and reads its header: of paths (beside the data, or in `media_dir`), of
base64 and data URLs, and of the bytes in Parquet files. It reports files that are not there, are empty, hold something
else (a page of HTML, a pointer of Git LFS), or end before their picture does. No pixel is decoded, and nothing is
fetched from an address.

If none of the files is found, the folder is not known, and nothing is reported: name it as `media_dir`.

## Why it is bad
The training stops at the row, perhaps hours later. Where a script catches the error, the row is trained without its
picture, or with a grey one, and its answer teaches the model to guess.

## Example
```yaml
data:
  - images: [{picture: [4, 4], kept: 50}]
    messages: [{role: user, content: "<image>What is it?"}, {role: assistant, content: It is black.}]
```

## Use instead
```yaml
data:
  - images: [{picture: [4, 4]}]
    messages: [{role: user, content: "<image>What is it?"}, {role: assistant, content: It is black.}]
```

## Fix safety
Fetch the files again, or leave these rows out. Leaving them out loses nothing that could be learned.

## References
- https://pillow.readthedocs.io/en/stable/reference/ImageFile.html (LOAD_TRUNCATED_IMAGES)
- hiyouga/LLaMA-Factory#5883
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Origin
from truetune.data.read_pictures_of_rows import Picture
from truetune.encoding.batch import Batch

MISSING, UNREADABLE = "missing", "unreadable"


class PicturesMissingOrUnreadable(DataRule):
    code = "ROW301"
    fault = Fault.PICTURES_REACH_MODEL_WRONGLY
    symptoms = ("nothing-is-learned",)
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.judged = self.files_there = 0
        self.counts: Counter[str] = Counter()
        self.cases: dict[str, list[Case]] = {MISSING: [], UNREADABLE: []}

    def add_batch(self, batch: Batch) -> None:
        """Count the pictures of a batch's rows that are not there, or not whole."""
        for row, pictures in self.setup.pictures.pictures_of_rows(batch.rows):
            for picture in pictures:
                self._count(picture, row.origin)

    def _count(self, picture: Picture, origin: Origin) -> None:
        """Count one picture."""
        if picture.state in ("remote", "unread"):
            return
        self.judged += 1
        self.files_there += picture.state != MISSING and not picture.is_in_row
        if not picture.problem:
            return
        fault = MISSING if picture.state == MISSING else UNREADABLE
        self.counts[fault] += 1
        if len(self.cases[fault]) < MAX_CASES:
            text = f"{picture.reference.place}: {picture.name}: {picture.problem}"
            self.cases[fault].append(Case(text, origin))

    def _is_folder_known(self) -> bool:
        """Is it known where the files are? Of those that are missing, others may lie in a folder that nobody named."""
        return self.files_there > 0 or self.spec.media_dir is not None

    def unmet(self) -> Unmet | None:
        """Unmet without a picture that can be opened, and where no file is found."""
        if not self.judged:
            return Unmet("it is about pictures in files or in the rows, and there are none")
        if self.counts[MISSING] == self.judged:
            return Unmet(
                "none of the pictures' files is beside the data", "name their folder: media_dir"
            )
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many pictures are missing or unreadable."""
        return make_count_measurement("pictures that are missing or unreadable", 0, self.judged)

    def findings(self) -> Iterator[Finding]:
        says = {
            MISSING: (
                "are not where the rows say",
                "correct the paths, or leave out rows whose picture is lost",
            ),
            UNREADABLE: (
                "are no pictures, or not whole",
                "fetch these files again, or leave out their rows",
            ),
        }
        for fault, (text, remedy) in says.items():
            count = self.counts[fault]
            if not count or (fault == MISSING and not self._is_folder_known()):
                continue
            yield self.finding(
                f"{count:,} of {self.judged:,} pictures {text}",
                remedy,
                cases=self.cases[fault],
                count=count,
                total=self.judged,
            )
