"""Rows have more or fewer pictures than places for them in the text.

## What it does
Counts the pictures, sounds and videos of each row, and their places in its text: parts such as `{"type": "image"}`
without a source of their own, or marks such as `<image>`, `<|image_pad|>`, `[IMG]`, `<start_of_image>`, `<video>`.

It is an error if a row has more places than pictures, and a warning if it has fewer. Pictures without any place are
reported in formats that need one: LLaVA's `conversations`, and any row that LLaMA-Factory trains; TRL and ms-swift
put them before the first question. Marks without any picture are reported if other rows have pictures, or if half of
the rows have such marks; a text about HTML's `<image>` is not.

## Why it is bad
LLaMA-Factory, TRL and the processors stop at such a row, often hours later. LLaVA's own training and ms-swift do not:
the picture is left out, or put at another place, and the answer is learned without what it describes.

## Example
```yaml
data:
  - images: [{picture: [4, 4]}]
    messages: [{role: user, content: "<image>How do <image> differ?"}, {role: assistant, content: One is red.}]
```

## Use instead
```yaml
data:
  - images: [{picture: [4, 4]}]
    messages: [{role: user, content: "<image>What is it?"}, {role: assistant, content: It is black.}]
```

## Fix safety
Adding a missing picture or removing a mark too many is safe. Leave out rows whose picture is lost: their answers can
only be guessed.

## References
- hiyouga/LLaMA-Factory#5658, hiyouga/LLaMA-Factory#8440, hiyouga/LLaMA-Factory#5329, modelscope/ms-swift#2460
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.data.media_of_row import (
    MEDIA_KINDS,
    MediaKind,
    RowMedia,
    count_placeholders,
    find_media_of_row,
    texts_of_row,
)
from truetune.encoding.batch import Batch

Mismatch = Literal["lacking", "surplus", "no place", "no picture"]
MIN_MARKED_SHARE = 0.5
"""Share of the rows with a mark from which a set without any picture has lost them. Chosen, not measured: of texts on
HTML few rows have one"""
REMEDIES: dict[Mismatch, str] = {
    "lacking": "add the pictures that are missing to these rows, or remove the marks too many",
    "surplus": "write a mark for each picture: <image> in LLaMA-Factory, ms-swift and LLaVA, a part of type image in"
    " TRL",
    "no place": "write a mark for each picture where it belongs: <image> in the question",
    "no picture": "name the column of the pictures (images in LLaMA-Factory, ms-swift and TRL, image in LLaVA), or"
    " remove the marks",
}


class PlacesAndMedia(NamedTuple):
    """How many media of a kind a row has, and how many places for them."""

    kind: MediaKind
    places: int
    media: int

    def __str__(self) -> str:
        """`2 places and 1 image`"""
        places = f"{self.places:,} place{'s' * (self.places != 1)}"
        return f"{places} and {self.media:,} {self.kind}{'s' * (self.media != 1)}"


class PicturesDoNotMatchPlaceholders(DataRule):
    code = "ROW300"
    fault = Fault.PICTURES_REACH_MODEL_WRONGLY
    symptoms = ("nothing-is-learned",)
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.rows_with_media = 0
        self.counts: Counter[Mismatch] = Counter()
        self.cases: dict[Mismatch, list[Case]] = {}

    def add_batch(self, batch: Batch) -> None:
        """Compare the media of each row with the places for them."""
        self.rows += len(batch.rows)
        for row in batch.rows:
            media = find_media_of_row(row)
            self.rows_with_media += bool(media)
            for compared in _places_and_media_of_row(row, media):
                mismatch = self._mismatch(row, compared)
                if mismatch is not None:
                    self.counts[mismatch] += 1
                    cases = self.cases.setdefault(mismatch, [])
                    if len(cases) < MAX_CASES:
                        cases.append(Case(str(compared), row.origin))

    def _mismatch(self, row: Conversation, compared: PlacesAndMedia) -> Mismatch | None:
        """How a row's places and media differ; None where they agree, or its trainers bring them together."""
        if compared.places == compared.media:
            return None
        if not compared.media:
            return "no picture"
        if not compared.places:
            needs_place = row.format == "sharegpt" or self.setup.trainer.name == "llama-factory"
            return "no place" if needs_place else None
        return "lacking" if compared.places > compared.media else "surplus"

    def unmet(self) -> Unmet | None:
        """Unmet without a picture, sound or video."""
        return (
            None
            if self.rows_with_media
            else Unmet("it is about rows with pictures, sound or video")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many rows have another number of media than of places."""
        what = "rows with another number of pictures, sounds or videos than of places for them"
        return make_count_measurement(what, 0, self.rows_with_media)

    def findings(self) -> Iterator[Finding]:
        says: dict[Mismatch, str] = {
            "lacking": "have more places for pictures, sound or video than they hold",
            "surplus": "have fewer places for pictures, sound or video than they hold",
            "no place": "hold pictures, sound or video, and no place in the text for any",
            "no picture": "have a place for pictures, sound or video, and hold none",
        }
        for mismatch, text in says.items():
            count = self.counts[mismatch]
            if not count or (mismatch == "no picture" and not self._are_lone_marks_a_loss()):
                continue
            yield self.finding(
                f"{count:,} of {self.rows:,} rows {text}",
                REMEDIES[mismatch],
                severity="error" if mismatch == "lacking" else "warning",
                cases=self.cases[mismatch],
                count=count,
                total=self.rows,
            )

    def _are_lone_marks_a_loss(self) -> bool:
        """Do marks without a picture say that one is lost? A few in a set of texts are words about HTML."""
        marked = self.counts["no picture"]
        return bool(self.rows_with_media) or marked >= MIN_MARKED_SHARE * self.rows


def _places_and_media_of_row(row: Conversation, media: RowMedia) -> Iterator[PlacesAndMedia]:
    """The places and media of each kind that a row has any of."""
    texts = list(texts_of_row(row))
    marks = {kind: count_placeholders(texts, kind) for kind in MEDIA_KINDS}
    if not media.count("image") and not marks["video"] and media.held("video"):
        # LLaVA's sets of videos write <image> for a video too.
        marks["video"], marks["image"] = marks["image"], 0
    for kind in MEDIA_KINDS:
        held, parts = len(media.held(kind)), media.parts(kind)
        bare = sum(part.value is None for part in parts)
        if not parts:
            yield PlacesAndMedia(kind, marks[kind], held)
        elif bare:
            # Parts with a source of their own need no column; where a column has one for each part, it counts them too.
            is_counted_whole = held == len(parts)
            yield PlacesAndMedia(kind, held if is_counted_whole else bare, held)
