"""Grey pictures of 16 bits turn white when they are made RGB.

## What it does
Counts the PNG files with one grey channel of 16 bits, by their header: scans, X-rays, depth maps.

## Why it is bad
Processors open pictures with Pillow and convert them to RGB. Pillow does not scale the values of such a picture from
65,535 down to 255, it cuts them off: all above 255 becomes white. The model sees a white square, and no error is
raised.

## Example
```yaml
data:
  - images: [{picture: [4, 4], bits: 16}]
    messages: [{role: user, content: "<image>Is the lung clear?"}, {role: assistant, content: It is.}]
```

## Use instead
```yaml
data:
  - images: [{picture: [4, 4]}]
    messages: [{role: user, content: "<image>Is the lung clear?"}, {role: assistant, content: It is.}]
```

## Fix safety
Write the pictures with 8 bits, scaled from the values that they use: `numpy.interp(a, (a.min(), a.max()), (0, 255))`.
Scale the pictures at inference in the same way.

## References
- python-pillow/Pillow#3011
- https://pillow.readthedocs.io/en/stable/handbook/concepts.html#modes (I;16)
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

CLIPPED_BITS = 16


class SixteenBitPicturesTurnWhite(DataRule):
    code = "ROW303"
    fault = Fault.PICTURES_REACH_MODEL_WRONGLY
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.pictures = self.clipped = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the pictures of a batch's rows that Pillow cuts off."""
        for row, pictures in self.setup.pictures.pictures_of_rows(batch.rows):
            for picture in pictures:
                self.pictures += picture.header is not None
                if not _is_cut_off_at_255(picture):
                    continue
                self.clipped += 1
                if len(self.cases) < MAX_CASES:
                    self.cases.append(Case(f"{picture.name}: grey with 16 bits", row.origin))

    def unmet(self) -> Unmet | None:
        """Unmet where the header of no picture could be read."""
        return (
            None
            if self.pictures
            else Unmet("it is about pictures that can be read, and there are none")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many pictures are grey with 16 bits."""
        return make_count_measurement("grey pictures of 16 bits", 0, self.pictures)

    def findings(self) -> Iterator[Finding]:
        if self.clipped:
            yield self.finding(
                f"{self.clipped:,} of {self.pictures:,} pictures are grey with 16 bits: made RGB by Pillow, all values"
                " above 255 of 65,535 become white",
                "write them with 8 bits, scaled from the values that they use, in training and at inference",
                cases=self.cases,
                count=self.clipped,
                total=self.pictures,
            )


def _is_cut_off_at_255(picture: Picture) -> bool:
    """Does Pillow cut off the picture's values when it makes it RGB?"""
    header = picture.header
    # With alpha, or in colours, Pillow takes the upper 8 bits.
    return (
        header is not None
        and header.colours == "grey"
        and header.bits == CLIPPED_BITS
        and not header.has_alpha
    )
