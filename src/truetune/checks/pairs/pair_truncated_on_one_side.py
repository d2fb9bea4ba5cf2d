"""Truncation cuts only one side of a pair.

## What it does
Cuts both sides of each pair as the trainer will (at `max_length`, or at TRL's default of 1,024 tokens if none is set).
It counts the pairs of which only one side loses its stop token, or all of its answer. With `truncation_mode: keep_end`,
it counts those of which only one side loses the beginning of its answer.

## Why it is bad
The stop token then tells the sides apart. If the chosen side is the one that is cut, the model learns to prefer answers
that do not end. A side without tokens gives NaN with losses that divide by length.

## Example
```yaml
spec: {max_length: 24}
data:
  - {prompt: [{role: user, content: "Is it open?"}],
     chosen: [{role: assistant, content: {repeat: 20, text: "It is open and "}}],
     rejected: [{role: assistant, content: No.}]}
```

## Use instead
```yaml
spec: {max_length: 1024}
data:
  - {prompt: [{role: user, content: "Is it open?"}],
     chosen: [{role: assistant, content: {repeat: 20, text: "It is open and "}}],
     rejected: [{role: assistant, content: No.}]}
```

## Fix safety
Dropping pairs that do not fit is safe. A higher limit needs more memory (both sides of a pair are in one batch). TRL
silently drops pairs whose prompt fills the limit: `truncation-leaves-no-label` counts those.

## References
- hiyouga/LLaMA-Factory#4402, hiyouga/LLaMA-Factory#4617, huggingface/trl#6548, huggingface/trl#2209,
  huggingface/trl#2551
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_example, side_of_pair_name
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import pair_length_limit
from truetune.checks.reasons_data_rules_cannot_judge import explain_uncounted_tokens
from truetune.checks.rule import MAX_CASES, PairRule, Setup
from truetune.checks.severity_by_trainer import CUT_ACTIONS
from truetune.data.count_media import Media
from truetune.encoding.batch import Batch


class PairTruncatedOnOneSide(PairRule):
    code = "PREF004"
    fault = Fault.TRAINING_ROWS_CUT
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    by_trainer = (CUT_ACTIONS,)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.limit = pair_length_limit(setup.spec, setup.trainer)
        self.empty = 0
        self.cut = {"chosen": 0, "rejected": 0}
        self.media = Media()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the pairs of a batch of which the length limit cuts one answer alone."""
        if batch.pairs is None:
            return
        self.pairs += len(batch.pairs.chosen.examples)
        self.media += batch.media
        one, other = (self._loses_answer_end(side) for side in batch.pairs)
        behind = [side.contexts >= self.limit.tokens for side in batch.pairs]
        if not self.limit.from_end:
            self.empty += int((behind[0] != behind[1]).sum())
        for i in np.flatnonzero(one != other).tolist():
            name, side = (
                ("chosen", batch.pairs.chosen) if one[i] else ("rejected", batch.pairs.rejected)
            )
            self.cut[name] += 1
            if len(self.cases) < MAX_CASES:
                lengths = [f"{s.lengths[i]:,}" for s in batch.pairs]
                text = (
                    f"chosen {lengths[0]} tokens, rejected {lengths[1]}: only the {name} side"
                    " is cut"
                )
                cut = (
                    int(side.lengths[i]) - self.limit.tokens
                    if self.limit.from_end
                    else self.limit.tokens
                )
                self.cases.append(case_in_example(side, i, cut, text, side=side_of_pair_name(name)))

    def _loses_answer_end(self, side: Batch) -> NDArray[np.bool_]:
        """(examples,) true if the cut takes the end of the answer; its beginning, if the trainer
        cuts there.
        """
        if self.limit.from_end:
            return np.asarray(
                (side.lengths - self.limit.tokens > side.contexts) & (side.contexts < side.lengths)
            )
        # The last supervised token of each example, for all at once: where the example's end would
        # be put into the sorted places of supervised tokens. -1 stands before them, for a first
        # example without any.
        last = np.append(-1, np.flatnonzero(side.supervised))
        ends = last[np.searchsorted(last, side.offsets[1:]) - 1] - side.offsets[:-1]
        return np.asarray(ends >= self.limit.tokens)

    def unmet(self) -> Unmet | None:
        """Also unmet where rows hold media, whose tokens are not counted."""
        return super().unmet() or explain_uncounted_tokens(
            self.media, is_named=self.spec.max_length is not None
        )

    def measurement_if_clean(self) -> Measurement:
        """How many pairs lose a part of one answer alone at the length limit."""
        part = "beginning" if self.limit.from_end else "end"
        what = f"pairs in which only one answer loses its {part} at {self.limit.text}"
        return make_count_measurement(what, sum(self.cut.values()), self.pairs)

    def findings(self) -> Iterator[Finding]:
        count = sum(self.cut.values())
        if count:
            part = "beginning" if self.limit.from_end else "end"
            evidence = [
                f"{n:,} pairs in which only the {name} side is cut"
                for name, n in self.cut.items()
                if n
            ]
            if self.empty:
                evidence.append(f"in {self.empty:,} pairs nothing is left of one answer")
            yield self.finding(
                f"{count:,} of {self.pairs:,} pairs lose the {part} of only one answer at {self.limit.text}, which"
                " then tells the sides apart",
                "raise max_length, or drop the pairs that do not fit before training",
                evidence=evidence,
                cases=self.cases,
                count=count,
                total=self.pairs,
            )
