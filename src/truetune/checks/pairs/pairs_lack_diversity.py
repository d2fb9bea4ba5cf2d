"""The two answers of a pair hardly differ, or most pairs have the same rejected answer.

## What it does
Counts the pairs whose answers are different but share more than 95 % of their tokens in order (twice their longest
common subsequence over both lengths). It also checks whether one rejected answer is in more than half of the pairs. It
is a warning if more than 10 % of the pairs are nearly identical (lower end of the 95 % interval), and an info from 2 %.
The same rejected answer in most pairs is always a warning.

## Why it is bad
Answers that were sampled greedily, or with one seed, hardly differ. DPO's gradient is then in the few tokens that do,
and the log-probability of the chosen answer falls with that of the rejected one. If all prompts have the same rejected
answer, the model memorises it: accuracy is 1 after a few steps, and nothing else is learned.

## Example
```yaml
data:
  - {prompt: [{role: user, content: Count.}],
     chosen: [{role: assistant, content: {repeat: 40, text: "and one "}}],
     rejected: [{role: assistant, content: {repeat: 41, text: "and one "}}]}
  - {prompt: [{role: user, content: Count on.}],
     chosen: [{role: assistant, content: {repeat: 50, text: "and two "}}],
     rejected: [{role: assistant, content: {repeat: 51, text: "and two "}}]}
```

## Use instead
```yaml
data:
  - {prompt: [{role: user, content: Count.}],
     chosen: [{role: assistant, content: {repeat: 40, text: "and one "}}], rejected: [{role: assistant, content: No.}]}
  - {prompt: [{role: user, content: Count on.}],
     chosen: [{role: assistant, content: {repeat: 50, text: "and two "}}], rejected: [{role: assistant, content: No!}]}
```

## Fix safety
Sample with a temperature of 0.7 or more, or from several models. If small edits are the point (corrections of one step
or one word), keep the pairs and use a loss that keeps the chosen answer likely (DPO-Positive, or `loss_type: [sigmoid,
sft]` in TRL).

## References
- Pal et al. 2024, "Smaug: Fixing Failure Modes of Preference Optimisation with DPO-Positive" (arXiv 2402.13228)
- hiyouga/LLaMA-Factory#2587, eric-mitchell/direct-preference-optimization#36
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.find_near_copies import GrowingArray
from truetune.checks.findings import Case, Finding
from truetune.checks.make_cases_at_tokens_and_turns import case_in_example
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import (
    completion_ids,
    wilson_interval,
)
from truetune.checks.pairs.evidence.token_edit_distance import (
    Ids,
    common_prefix_length,
    is_within_edits,
    lower_bound_of_edits,
    without_common_ends,
)
from truetune.checks.rule import MAX_CASES, PairRule, Setup
from truetune.encoding.batch import Batch

# Chosen, not measured: one word in twenty. At 0.9 short answers that differ in one word of ten
# would count as the same; at 0.99 only answers that differ in a single token of a hundred would.
ALIKE_SHARE = 0.95
"""Tokens in common, in order, of both answers together, from which they are nearly the same"""
# Chosen, not measured. The interval's lower end is compared, so that a tenth must be sure and not
# only seen.
WARNING_SHARE, NOTE_SHARE = 0.1, 0.02
# With half of the pairs needed, ten pairs share one answer then.
MIN_PAIRS = 20
"""Pairs from which a rejected answer that repeats is no chance"""
# Some seconds of Python for the whole data set. Pairs beyond it are counted as not compared, and
# never as alike.
MAX_STEPS = 20_000_000
"""Steps for pairs that must be compared to the end; most are told apart by the counts of their tokens."""


class PairsLackDiversity(PairRule):
    code = "PREF009"
    fault = Fault.PAIRS_WITHOUT_CONTRAST
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.alike = self.steps = self.left_out = 0
        self.cases: list[Case] = []
        self.rejected = GrowingArray()

    def add_batch(self, batch: Batch) -> None:
        """Count the pairs of a batch with nearly the same answers, and keep hashes of the rejected ones."""
        if batch.pairs is None:
            return
        chosen, rejected = batch.pairs
        self.pairs += len(chosen.examples)
        hashes = []
        for i, (good, bad) in enumerate(
            zip(completion_ids(chosen), completion_ids(rejected), strict=True)
        ):
            hashes.append(hash(bad.tobytes()))
            self._count_if_nearly_same(good, bad, chosen, i)
        self.rejected.add(np.array(hashes, dtype=np.int64))

    def _count_if_nearly_same(self, good: Ids, bad: Ids, chosen: Batch, i: int) -> None:
        """Count a pair whose answers are nearly the same; equal ones are preference-pairs-identical's."""
        most = int((1 - ALIKE_SHARE) * (len(good) + len(bad)))
        one, other = without_common_ends(good, bad)
        if abs(len(good) - len(bad)) > most or not (len(one) or len(other)):
            return
        # What is left after both ends is at most as many edits: only where that is too many must
        # they be counted.
        if len(one) + len(other) > most:
            if lower_bound_of_edits(one, other) > most:
                return
            if self.steps + most * most > MAX_STEPS:
                self.left_out += 1
                return
            self.steps += most * most
            if not is_within_edits(one, other, most):
                return
        self.alike += 1
        if len(self.cases) < MAX_CASES:
            text = f"the two sides ({len(good):,} and {len(bad):,} tokens) differ only in "
            text += f"{len(one):,} and {len(other):,} tokens in a row at most"
            self.cases.append(
                case_in_example(
                    chosen,
                    i,
                    int(chosen.contexts[i]) + min(common_prefix_length(good, bad), len(good) - 1),
                    text,
                )
            )

    def measurement_if_clean(self) -> Measurement:
        """How many pairs have two answers that are nearly the same."""
        return make_count_measurement(
            "pairs whose two answers are nearly the same", self.alike, self.pairs - self.left_out
        )

    def findings(self) -> Iterator[Finding]:
        compared = self.pairs - self.left_out
        if self.alike + self.left_out >= max(NOTE_SHARE * self.pairs, 1):
            low, high = wilson_interval(self.alike, compared)
            share = self.alike / max(compared, 1)
            unsure = (
                f"; {self.left_out:,} more that may be alike were not compared"
                if self.left_out
                else ""
            )
            yield self.finding(
                f"the two answers are nearly the same in {self.alike:,} of {compared:,} pairs: little can be learned"
                " from their difference",
                "sample the answers with a temperature of 0.7 or more, or from several models",
                severity="warning" if low > WARNING_SHARE else "info",
                evidence=[
                    f"{share:.1%} of the pairs, 95 % interval {low:.1%} to {high:.1%}{unsure}"
                ],
                cases=self.cases,
                count=self.alike,
                total=compared,
            )
        if self.pairs >= MIN_PAIRS:
            _, counts = np.unique(self.rejected.whole(), return_counts=True)
            times = int(counts.max())
            if times * 2 > self.pairs:
                yield self.finding(
                    f"{times:,} of {self.pairs:,} pairs have the same rejected answer: the model learns to avoid"
                    " only that one",
                    "sample a separate rejected answer for each prompt, from the model that you train",
                    evidence=[f"{len(counts):,} different rejected answers in all"],
                    count=times,
                    total=self.pairs,
                )
