"""One phrase or mark of form distinguishes the chosen from the rejected answers.

## What it does
Takes the first and the last three words of each answer. It is a warning if 90 % of the rejected answers have the same
ones and at most 2 % of the chosen answers have them. It is an info if the chosen answers share such a phrase, since
that may be intended. It does not fire if most answers of that side are identical (`pairs-lack-diversity`).

Then it compares marks of form: a list, bold words or headings, code, an emoji, a refusal, another script, reasoning
tags, white space around the answer, a small letter in front, an end inside a sentence. It is a warning if one side has
such a mark in half of all pairs more than the other (white space 30 %, ends inside a sentence 20 %), and the other side
alone hardly ever. Refusals, scripts and reasoning of the chosen answers are an info.

## Why it is bad
The loss falls to zero as soon as the model gives these words a lower (or higher) probability. The accuracy is 1.0 after
a few steps, and nothing else is learned from the pairs. With more steps, the probability of what follows falls too.

## Example
```yaml
data: {rows: 40, prompt: "Question {i}?", chosen: "{words_before}", rejected: "As an AI model, {words}"}
```

## Use instead
```yaml
data: {rows: 40, prompt: "Question {i}?", chosen: "{words}", rejected: "{words_before}"}
```

## Fix safety
There is no automatic fix. If the phrase is what the run should teach or unlearn, a few hundred pairs and a low learning
rate are enough.

## References
- huggingface/trl#2003
- Geirhos et al. 2020, "Shortcut Learning in Deep Neural Networks" (arXiv 2004.07780)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import pair_texts
from truetune.checks.pairs.evidence.marks_of_form_in_answers import (
    MARKS_OF_FORM,
    MarkOfForm,
    marks_of_form_in,
)
from truetune.checks.rule import PairRule, Setup
from truetune.encoding.batch import Batch

# Chosen, not measured: two words ("I am", "It is") begin answers by chance, and five differ by a comma.
PHRASE_WORDS = 3
"""Words of a phrase at the beginning or the end of an answer"""
# Chosen, not measured: recipes that write a phrase write it nearly always; the pairs of public sets are far below both.
MIN_SHARE, MAX_OTHER_SHARE = 0.9, 0.02
"""Share of the one side that has the phrase, and of the other that may have it too"""
# With fewer pairs 0.9 and 0.02 are one or two answers.
MIN_PAIRS = 30
MIN_DISTINCT_SHARE = 0.5
"""Share of the answers of a side that are different as a whole. Below, the whole answer tells the side"""
MIN_DISTINCT = 10
"""Different answers of a side from which its marks of form are told; fewer are `pairs-lack-diversity`'s"""
MAX_REVERSE_SHARE = 0.1
"""Pairs in which the other side alone has a mark of form, for each in which this side alone has it"""
READ_CHARACTERS = 400
"""Characters of an answer at each end in which the words are"""


class Phrase(NamedTuple):
    """Words that the answers of one side share."""

    words: str
    place: str
    """"begin" or "end" """
    share: int
    other: int
    """Answers of the other side that have it"""


class OnePhraseTellsTheSides(PairRule):
    code = "PREF028"
    fault = Fault.PAIRS_TOLD_APART_BY_FORM
    symptoms = ("dpo-without-effect", "odd-metrics")
    severity = "warning"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.phrases = {
            side: {place: Counter[str]() for place in ("begin", "end")}
            for side in ("chosen", "rejected")
        }
        self.answers: dict[str, set[int]] = {"chosen": set(), "rejected": set()}
        self.alone = {"chosen": Counter[str](), "rejected": Counter[str]()}
        """Pairs in which this side alone has a mark of form"""

    def add_batch(self, batch: Batch) -> None:
        """Count the phrases of the chosen and of the rejected answers of a batch."""
        for row in batch.rows:
            if row.rejected is None:
                continue
            texts = pair_texts(row)
            self.pairs += 1
            self._count_phrases("chosen", texts.chosen)
            self._count_phrases("rejected", texts.rejected)
            chosen, rejected = marks_of_form_in(texts.chosen), marks_of_form_in(texts.rejected)
            self.alone["chosen"].update(chosen - rejected)
            self.alone["rejected"].update(rejected - chosen)

    def _count_phrases(self, side: str, text: str) -> None:
        """Count the phrases of one answer."""
        self.answers[side].add(hash(text))
        first, last = text[:READ_CHARACTERS].split(), text[-READ_CHARACTERS:].split()
        if len(first) > PHRASE_WORDS:
            self.phrases[side]["begin"][" ".join(first[:PHRASE_WORDS])] += 1
            self.phrases[side]["end"][" ".join(last[-PHRASE_WORDS:])] += 1

    def unmet(self) -> Unmet | None:
        """Also unmet where the pairs are too few."""
        if 0 < self.pairs < MIN_PAIRS:
            return Unmet(f"it is about {MIN_PAIRS} pairs or more")
        return super().unmet()

    def measurement_if_clean(self) -> Measurement:
        """In how many pairs a side begins or ends with its commonest phrase."""
        counts = [
            counter.most_common(1)[0][1]
            for places in self.phrases.values()
            for counter in places.values()
            if counter
        ]
        return make_count_measurement(
            "pairs in which one side begins or ends with its commonest phrase",
            max(counts, default=0),
            self.pairs,
        )

    def findings(self) -> Iterator[Finding]:
        for side, other in (("rejected", "chosen"), ("chosen", "rejected")):
            phrase = self._phrase_of_one_side(side, other)
            if phrase is None:
                continue
            count = f"{phrase.other:,}" if phrase.other else "none"
            yield self.finding(
                f"{phrase.share:,} of {self.pairs:,} {side} answers {phrase.place} with {phrase.words!r}, and"
                f" {count} of the {other} answers: the model only has to learn these words",
                f"remove these words from the {side} answers, or sample both sides from the same model with the same"
                " prompt",
                severity="warning" if side == "rejected" else "info",
                count=phrase.share,
                total=self.pairs,
            )
            return
        yield from self._findings_on_marks_of_form()

    def _findings_on_marks_of_form(self) -> Iterator[Finding]:
        """The findings on marks of form that tell the sides apart: one for each side."""
        for side, other in (("rejected", "chosen"), ("chosen", "rejected")):
            marks = [mark for mark in MARKS_OF_FORM if self._does_mark_tell_side(mark, side, other)]
            if not marks:
                continue
            first = marks[0]
            told = ", ".join(
                f"{mark.name} in {self.alone[side][mark.name]:,} (the {other} alone in"
                f" {self.alone[other][mark.name]:,})"
                for mark in marks
            )
            is_meant = side == "chosen" and all(mark.may_be_meant for mark in marks)
            yield self.finding(
                f"of {self.pairs:,} pairs the {side} answers alone {told}: the model only has to learn this mark",
                f"make both sides alike in form: write the answers of both sides in the same way, and drop pairs in"
                f" which the {side} ones {first.name}",
                severity="info" if is_meant else "warning",
                count=self.alone[side][first.name],
                total=self.pairs,
            )

    def _does_mark_tell_side(self, mark: MarkOfForm, side: str, other: str) -> bool:
        """Has one side a mark in far more pairs, and the other side alone in hardly any?"""
        # Where either side is one text, that tells the sides, and no mark of its form.
        if self.pairs < MIN_PAIRS or min(map(len, self.answers.values())) < MIN_DISTINCT:
            return False
        alone, reverse = self.alone[side][mark.name], self.alone[other][mark.name]
        return (
            alone - reverse >= mark.least_gap * self.pairs and reverse <= MAX_REVERSE_SHARE * alone
        )

    def _phrase_of_one_side(self, side: str, other: str) -> Phrase | None:
        """The words that nearly all answers of a side share, and hardly any of the other."""
        if self.pairs < MIN_PAIRS or len(self.answers[side]) < MIN_DISTINCT_SHARE * self.pairs:
            return None
        for place, counts in self.phrases[side].items():
            for words, share in counts.most_common(1):
                others = self.phrases[other][place][words]
                if share >= MIN_SHARE * self.pairs and others <= MAX_OTHER_SHARE * self.pairs:
                    return Phrase(words, place, share, others)
        return None
