"""The length of the answers shows which one is chosen.

## What it does
Measures how often the longer answer is the chosen one, with a 95 % interval (Wilson), over the pairs whose lengths
differ by more than 10 % of the longer side. It counts tokens in the loss (bytes if no tokenizer is given). It is an
info from 0.6, and a warning from 0.75 (or below 0.4 and 0.25), for the whole interval, not only the measured share. It
is an info too if half of the prompts ask for such answers (concise, one sentence; in detail), or if the longer side is
less than a third longer.

## Why it is bad
DPO sums log-probabilities over tokens, so length is the easiest thing to learn. Answers grow (or shrink) without limit,
the accuracy is 1.0 after a few steps, and the intended preference is not learned.

## Example
```yaml
data: {pairs: 40, chosen: 4, rejected: 40}
```

## Use instead
```yaml
data: {pairs: 40, chosen: 40, rejected: 40}
```

## Fix safety
Sample pairs so that each side is longer equally often. Or use a loss that divides by length (SimPO; `loss_type: ipo` in
TRL averages over tokens), or TRL's `ld_alpha`. Some bias is normal if longer answers are better: 0.55 to 0.65 is common
in published helpfulness data.

## References
- allenai/reward-bench#268, huggingface/trl#2003
- Singhal et al. 2023, "A Long Way to Go: Investigating Length Correlations in RLHF" (arXiv 2310.03716)
- Park et al. 2024, "Disentangling Length from Quality in Direct Preference Optimization" (arXiv 2403.19159)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from truetune.checks.faults import Fault
from truetune.checks.find_near_copies import GrowingArray
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import wilson_interval
from truetune.checks.rule import PairRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of

# Chosen, not measured: a word more or less is no length that a model could go by.
MIN_LENGTH_DIFFERENCE = 0.1
"""Share of the longer side from which two lengths differ."""
# In LLaMA-Factory's two sets of pairs the longer answer wins in 42 and 59 %, and neither is told.
# Three of four and more is what a judge or a recipe does that rewards length. The ends of the
# interval are compared, so few pairs say nothing.
WARNING_SHARE, NOTE_SHARE = 0.75, 0.6
"""Share of the pairs in which the longer (or the shorter) answer is chosen"""
# Chosen, not measured: people and judges disagree with any rule in one pair of twenty.
RULE_SHARE = 0.95
"""Share from which length, or a sort, seems to be what the pairs were built by"""

# Chosen, not measured: answers that are a fifth longer are a habit of whoever wrote them, and a loss that learns them
# makes answers a fifth longer. At half of it, a word more would warn; at double, "twice as long" would be a note.
LARGE_RATIO = 4 / 3
"""The longer side by the shorter one, in the median of the pairs that differ, from which the bias is a warning"""

REMEDY = (
    "drop pairs until each side is longer equally often, or use a loss that is normalised by length (in TRL:"
    " loss_type ipo, or ld_alpha)"
)
REMEDY_WHERE_LENGTH_TELLS_ALL = (
    f"{REMEDY}. Read ten pairs first: if chosen is the worse answer, swap the sides in the script that built the"
    " pairs"
)
REMEDY_WHERE_ASKED = f"if you want to teach this length, change nothing; otherwise {REMEDY}"
MAX_PROMPT_CHARS = 4_000
"""Characters of a prompt that are searched for a wish for length. Chosen by hand: it is said at the
beginning, and documents may follow"""
ASKED_SHARE = 0.5
"""Share of the prompts that ask for a length, from which the pairs are about it. Chosen, not measured"""
ASKS_FOR_LENGTH = {
    "shorter": re.compile(
        r"\b(?:concise(?:ly)?|brief(?:ly)?|terse(?:ly)?|succinct(?:ly)?|short(?:er|ly)?|(?:one|a single|two) sentences?"
        r"|few words|to the point|(?:under|most|than) \d{1,3} words|kurz\w{0,2}|knapp\w{0,2})\b",
        re.IGNORECASE,
    ),
    "longer": re.compile(
        r"\b(?:detail(?:ed)?|thorough(?:ly)?|long(?:er)?|step by step|elaborate(?:ly)?|in depth|comprehensive(?:ly)?"
        r"|at least \d{2,4} words|ausführlich\w{0,2})\b",
        re.IGNORECASE,
    ),
}
"""What prompts say where the length of the answer is a part of the task"""


class PreferenceLengthBias(PairRule):
    code = "PREF003"
    fault = Fault.PAIRS_TOLD_APART_BY_FORM
    symptoms = ("dpo-without-effect",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.lengths = GrowingArray()
        self.longer = (0, 0)
        """Pairs in which the longer answer is the chosen one, of those whose lengths differ"""

        self.scored = (0, 0)
        """Rows whose scores are better for the chosen side, of those that have scores of both"""
        self.asked = Counter[str]()
        """Pairs whose prompt asks for shorter, or for longer answers"""

    def add_batch(self, batch: Batch) -> None:
        """Keep the lengths of both answers of a batch's pairs, and count prompts that ask for a length."""
        differences = [row.scores.difference for row in batch.rows if row.scores is not None]
        right, of = self.scored
        self.scored = (
            right + sum(one > 0 for one in differences),
            of + sum(one != 0 for one in differences),
        )
        for row in batch.rows:
            if row.rejected is not None:
                prompt = _prompt_text(row)
                self.asked.update(
                    word for word, pattern in ASKS_FOR_LENGTH.items() if pattern.search(prompt)
                )
        if batch.pairs is not None:
            counts = [side.count_true_per_example(side.supervised) for side in batch.pairs]
            self.pairs += len(counts[0])
            self.lengths.add(np.stack(counts, axis=1).astype(np.int32))

    def unmet(self) -> Unmet | None:
        """Also unmet where the lengths of too few pairs differ."""
        _, of = self.longer
        # Even if the longer answer won in all of them, the interval would reach down to where
        # nothing is told.
        if of and wilson_interval(of, of)[0] <= NOTE_SHARE:
            reason = f"the lengths of only {of:,} of {self.pairs:,} pairs differ by more than 10 %: too few to judge"
            return Unmet(reason, "give more pairs")
        return super().unmet()

    def measurement_if_clean(self) -> Measurement:
        """In how many pairs of unlike length the longer answer is the chosen one."""
        longer, of = self.longer
        if not of:
            return make_count_measurement(
                "pairs whose lengths differ by more than a tenth", 0, self.pairs
            )
        return make_count_measurement(
            "pairs of different length in which the longer answer is the chosen one", longer, of
        )

    def findings(self) -> Iterator[Finding]:
        if not self.lengths.parts:
            return
        lengths = self.lengths.whole()
        self.longer = _count_longer_chosen(lengths)
        low, high = wilson_interval(*self.longer)
        if low > NOTE_SHARE:
            yield self._finding_on_length("longer", lengths)
        elif high < 1 - NOTE_SHARE:
            yield self._finding_on_length("shorter", lengths)

    def _finding_on_length(self, word: str, lengths: NDArray[np.int32]) -> Finding:
        """The finding that the longer, or the shorter, answer is nearly always the chosen one."""
        longer, of = self.longer
        low, high = wilson_interval(longer, of)
        count = longer if word == "longer" else of - longer
        is_large = _median_length_ratio(lengths) >= LARGE_RATIO
        is_clear = is_large and (low > WARNING_SHARE or high < 1 - WARNING_SHARE)
        unit = "bytes" if self.setup.are_tokens_single_bytes else "tokens"
        medians = [int(np.median(side)) for side in lengths.T]
        return self.finding(
            f"the {word} answer is the chosen one in {count / of:.0%} of the pairs whose lengths differ: the model"
            " can win by length",
            self._remedy_for_length_bias(word, count / of, is_large=is_large),
            severity="warning"
            if is_clear and not self._do_most_prompts_ask_for_length(word)
            else "info",
            evidence=[
                (
                    f'accuracy of "longer wins": {longer / of:.2f}, 95 % interval {low:.2f} to'
                    f" {high:.2f} of {of:,}"
                ),
                f"{len(lengths) - of:,} pairs whose lengths differ by 10 % or less are left out",
                f"median length in {unit}: chosen {medians[0]:,}, rejected {medians[1]:,}",
                *self._reasons_for_length_bias(word, count / of, is_large=is_large),
            ],
            count=count,
            total=of,
        )

    def _do_most_prompts_ask_for_length(self, word: str) -> bool:
        """Do most prompts ask for answers that are longer, or shorter (`word`)?"""
        return self.asked[word] >= ASKED_SHARE * self.pairs

    def _do_scores_confirm_sides(self) -> bool:
        """Do the rows' own scores say that the sides are not exchanged?"""
        right, of = self.scored
        return right > of / 2

    def _remedy_for_length_bias(self, word: str, share: float, *, is_large: bool) -> str:
        """What to do where so large a share of the chosen answers is longer, or shorter; much longer, if `is_large`."""
        if self._do_most_prompts_ask_for_length(word):
            return REMEDY_WHERE_ASKED
        may_be_exchanged = is_large and share >= RULE_SHARE and not self._do_scores_confirm_sides()
        return REMEDY_WHERE_LENGTH_TELLS_ALL if may_be_exchanged else REMEDY

    def _reasons_for_length_bias(self, word: str, share: float, *, is_large: bool) -> Iterator[str]:
        """Why the length may tell the sides apart: prompts, scores, or how the pairs were built."""
        right, of = self.scored
        other = "shorter" if word == "longer" else "longer"
        if self._do_most_prompts_ask_for_length(word):
            yield (
                f"{self.asked[word]:,} of {self.pairs:,} prompts ask for {word} answers, so the length is part of"
                " what is taught"
            )
        elif share >= RULE_SHARE and self._do_scores_confirm_sides():
            yield (
                f"the sides are not swapped: the rows' own scores are better for the chosen side in {right:,} of"
                f" {of:,} pairs. But so close to 100 %, the scores seem to follow the length: read ten pairs"
            )
        elif is_large and share >= RULE_SHARE:
            yield (
                "so close to 100 %, the pairs seem to be selected by length, or the sides were swapped when they"
                " were built (sorted in the wrong direction, rank taken for score, columns in the other order), and"
                f" the {other} answer is the better one: read ten pairs"
            )


def _count_longer_chosen(lengths: NDArray[np.int32]) -> tuple[int, int]:
    """(pairs in which the longer answer is the chosen one, pairs whose lengths differ)."""
    chosen, rejected = lengths.T
    differ = np.abs(chosen - rejected) > MIN_LENGTH_DIFFERENCE * lengths.max(axis=1)
    return int((chosen > rejected)[differ].sum()), int(differ.sum())


def _median_length_ratio(lengths: NDArray[np.int32]) -> float:
    """How many times as long as its shorter side the longer one is, in the median of the pairs whose lengths differ."""
    shorter, longer = lengths.min(axis=1), lengths.max(axis=1)
    differ = longer - shorter > MIN_LENGTH_DIFFERENCE * longer
    # An empty side has no length to divide by: any answer is far longer.
    return float(np.median(longer[differ] / np.maximum(shorter[differ], 1)))


def _prompt_text(row: Conversation) -> str:
    """The text before the answers of a pair, with the system prompt; only its beginning, if it is
    long.
    """
    texts = [text_of(one.get("content")) for one in row.messages[: row.prompt_messages or 0]]
    return "\n".join(texts or [row.prompt or ""])[:MAX_PROMPT_CHARS]
