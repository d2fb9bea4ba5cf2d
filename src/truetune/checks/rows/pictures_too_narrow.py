"""Pictures are so narrow that processors refuse them or lose what they show.

## What it does
Compares the sides of each picture, from the header of its file. It is an error if the processor of the model raises an
error on a picture of that size, as Qwen's do above 200 : 1, and a warning above that ratio if the processor is not
known. LLaMA-Factory changes the shape of such pictures itself, so they are not reported for it.

## Why it is bad
The training stops at the row. Processors that take such a picture squeeze it into a square: of a line of text 600
pixels long and 2 high nothing can be read.

## Example
```yaml
data:
  - images: [{picture: [2, 600]}]
    messages: [{role: user, content: "<image>What is it?"}, {role: assistant, content: A line.}]
```

## Use instead
```yaml
data:
  - images: [{picture: [4, 4]}]
    messages: [{role: user, content: "<image>What is it?"}, {role: assistant, content: A square.}]
```

## Fix safety
Leave such rows out if the picture is a slip of a crop. A long screenshot can be cut into several pictures, each with
its own mark.

## References
- QwenLM/Qwen2.5-VL, smart_resize (absolute aspect ratio must be smaller than 200)
- hiyouga/LLaMA-Factory#5968
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.read_pictures_of_rows import Picture
from truetune.encoding.batch import Batch
from truetune.render.pictures.picture_expansion import PictureRefusedError
from truetune.render.pictures.picture_families import PictureTokenizer
from truetune.render.pictures.sizes_on_patch_grids import MAX_ASPECT_RATIO


class PicturesTooNarrow(DataRule):
    code = "ROW302"
    fault = Fault.PICTURES_REACH_MODEL_WRONGLY
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.pictures = self.narrow = self.refused = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Compare the sides of the pictures of a batch's rows."""
        for row, pictures in self.setup.pictures.pictures_of_rows(batch.rows):
            for picture in pictures:
                if picture.header is None or not picture.header.is_size_known:
                    continue
                self.pictures += 1
                reason = self._why_too_narrow(picture)
                if reason and len(self.cases) < MAX_CASES:
                    self.cases.append(Case(f"{picture.name}: {reason}", row.origin))

    def _why_too_narrow(self, picture: Picture) -> str:
        """Why a picture is too narrow, which is counted; empty where it is not."""
        # LLaMA-Factory makes such a picture less narrow before the processor gets it.
        if picture.header is None or self.setup.trainer.name == "llama-factory":
            return ""
        width, height = picture.header.shown_size
        processor = self.setup.picture_tokens
        if isinstance(processor, PictureTokenizer):
            try:
                processor.expand(width, height)
            except PictureRefusedError as error:
                self.refused += 1
                return f"{width:,} x {height:,} pixels: {error}"
        if max(width, height) <= MAX_ASPECT_RATIO * min(width, height):
            return ""
        self.narrow += 1
        return f"{width:,} x {height:,} pixels"

    def unmet(self) -> Unmet | None:
        """Unmet where the size of no picture is known."""
        return (
            None
            if self.pictures
            else Unmet("it is about pictures whose size can be read, and there are none")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many pictures are too narrow."""
        what = f"pictures narrower than {MAX_ASPECT_RATIO} : 1, or refused by the processor"
        return make_count_measurement(what, 0, self.pictures)

    def findings(self) -> Iterator[Finding]:
        count = self.narrow + self.refused
        if not count:
            return
        says = (
            "are so narrow that the model's processor raises an error on them"
            if self.refused
            else f"are narrower than {MAX_ASPECT_RATIO} : 1, and Qwen's processors raise an error on them"
        )
        yield self.finding(
            f"{count:,} of {self.pictures:,} pictures {says}",
            "leave these rows out, or cut the pictures into several",
            severity="error" if self.refused else "warning",
            cases=self.cases,
            count=count,
            total=self.pictures,
        )
