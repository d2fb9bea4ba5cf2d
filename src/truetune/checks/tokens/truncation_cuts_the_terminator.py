"""Examples longer than max_length lose the stop token of their last answer.

## What it does
Counts the examples longer than `max_length` whose last trained stop token comes after the cut. It is a warning. If
prompts are in the loss too, a row may lose its whole answer and still have labels: such rows are counted separately,
and it is an error if nearly all rows (90 %) are like that.

## Why it is bad
Those rows teach that a long answer does not end: the tuned model stops after short answers, but not after long ones.

## Example
```yaml
spec: {max_length: 16}
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - {role: assistant, content: "It is open from nine to five on all days but Sunday, and on Monday from ten."}
```

## Use instead
```yaml
spec: {max_length: 512}
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - {role: assistant, content: "It is open from nine to five on all days but Sunday, and on Monday from ten."}
```

## Fix safety
A higher limit needs more memory. Dropping the long rows is safe, and better than cutting them.

## References
- huggingface/trl#6003, OpenRLHF/OpenRLHF#1311
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.learned_tokens_against_ideal_mask import ideal_loss_mask
from truetune.checks.make_cases_at_tokens_and_turns import case_in_example
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import (
    NO_EXAMPLE,
    NO_LIMIT,
    explain_uncounted_tokens,
)
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.severity_by_trainer import CUT_ACTIONS, is_nearly_all
from truetune.checks.shared_by_rules_on_cut_answers import ENDS_ARE_LOST
from truetune.data.count_media import Media
from truetune.encoding.batch import Batch
from truetune.render.rendering import Source


class TruncationCutsTheTerminator(DataRule):
    code = "LEN003"
    fault = Fault.TRAINING_ROWS_CUT
    symptoms = ("never-stops", "nothing-is-learned")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    judges_cut = True
    moot_where = ("pair-truncated-on-one-side", "truncation-cuts-pictures")
    by_trainer = (CUT_ACTIONS,)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.examples = self.longer = self.cut = self.whole = 0
        self.media = Media()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the examples, those longer than max_length, and those that keep a trained token and
        lose the last stop token.
        """
        self.examples += len(batch.examples)
        self.media += batch.media
        limit = self.spec.max_length
        if limit is None:
            return
        longer = np.flatnonzero(batch.lengths > limit).tolist()
        self.longer += len(longer)
        # The mask of answers costs a pass over the batch, and is needed only where something is
        # cut.
        answers = ideal_loss_mask(batch) if longer else batch.supervised
        for i in longer:
            part = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
            trained = np.flatnonzero(batch.supervised[part])
            stops = np.flatnonzero(batch.supervised[part] & (batch.source[part] == Source.STOP))
            # Where not even the first supervised token is kept, truncation-leaves-no-label tells
            # it.
            if len(stops) and stops[-1] >= limit and trained[0] < limit:
                self.cut += 1
                self.whole += not answers[part][:limit].any()
                if len(self.cases) < MAX_CASES:
                    text = (
                        f"{batch.lengths[i]:,} tokens; its last stop token is at position"
                        f" {stops[-1] + 1:,}"
                    )
                    self.cases.append(case_in_example(batch, i, limit, text))

    def unmet(self) -> Unmet | None:
        """Unmet where no max_length is set, there is no example, or the tokens of media are not
        counted.
        """
        if self.spec.max_length is None:
            return NO_LIMIT
        if not self.examples:
            return NO_EXAMPLE
        return explain_uncounted_tokens(self.media, is_named=True)

    def measurement_if_clean(self) -> Measurement:
        """The number of examples that lose their last stop token at max_length, and how many are
        longer than it.
        """
        what = f"examples that lose their last stop token at {self.spec.max_length:,} tokens"
        return make_count_measurement(
            what, self.cut, self.examples, f" ({self.longer:,} are longer)"
        )

    def findings(self) -> Iterator[Finding]:
        if self.cut:
            whole = self.whole and f", {self.whole:,} of them the whole answer"
            lost = "the whole answer" if self.whole == self.cut else "the end of their answer"
            where = f"at {self.spec.max_length:,} tokens"
            if self.whole == self.cut:
                where = f": it is after the cut {where} ({self.setup.trainer.cut.value.setting})"
            yield self.finding(
                f"{self.cut:,} of {self.examples:,} examples lose {lost}{' ' * (where[0] != ':')}{where}"
                + (whole if whole and self.whole < self.cut else ""),
                (
                    "raise max_length, or drop these rows: of a row without its answer, only the prompt is trained"
                    " on"
                    if self.whole
                    else (
                        "raise max_length, or drop these rows before training; a cut answer teaches the model not"
                        " to stop"
                    )
                ),
                severity="error" if is_nearly_all(self.whole, self.examples) else None,
                evidence=() if self.setup.trainer.cut.value.action == "drop" else (ENDS_ARE_LOST,),
                cases=self.cases,
                count=self.cut,
                total=self.examples,
            )
