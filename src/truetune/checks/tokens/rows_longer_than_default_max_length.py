"""No max_length is set, and examples are longer than the trainer's default.

## What it does
If the run sets no `max_length`, counts the examples over the default of its trainer: TRL's 1,024 tokens (also used if
the trainer is not known), LLaMA-Factory's 2,048, Axolotl's 512. It is a warning, or an error if nearly all rows lose
their whole answer.

## Why it is bad
TRL silently cuts them at 1,024 tokens: answers end in the middle of a sentence, without their stop token.

## Example
```yaml
data:
  - messages:
      - {role: user, content: Count.}
      - {role: assistant, content: {repeat: 700, text: "and one "}}
```

## Use instead
```yaml
spec: {max_length: 4096}
data:
  - messages:
      - {role: user, content: Count.}
      - {role: assistant, content: {repeat: 700, text: "and one "}}
```

## Fix safety
Setting `max_length` to the longest example needs memory for that batch; dropping the longest rows loses those rows.

## References
- huggingface/trl#2400, unslothai/unsloth#2904, huggingface/alignment-handbook#32
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
from truetune.checks.reasons_data_rules_cannot_judge import NO_EXAMPLE, explain_uncounted_tokens
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact, SeverityForFact, is_nearly_all
from truetune.checks.shared_by_rules_on_cut_answers import ENDS_ARE_LOST
from truetune.data.count_media import Media
from truetune.encoding.batch import Batch
from truetune.render.rendering import Source

DEFAULT_MAX_LENGTH = 1024
"""TRL's, which is taken where the trainer is not known"""

UNKNOWN_TRAINER = (
    "the trainer is not known, and others have another limit, or none; give it with --trainer"
)
LIMIT_IS_OPEN = Unmet(
    "the program sets max_length, or may set it, to an unknown value",
    "give it with --max-length",
)


class RowsLongerThanDefaultMaxLength(DataRule):
    code = "LEN005"
    fault = Fault.TRAINING_ROWS_CUT
    symptoms = ("loss-does-not-fall", "nothing-is-learned", "never-stops")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    judges_cut = True
    by_trainer = (
        SeverityByFact(
            "cut.action",
            {"none": MOOT, "count": MOOT, None: SeverityForFact("warning", UNKNOWN_TRAINER)},
        ),
    )

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        cut = setup.trainer.cut.value
        self.limit = DEFAULT_MAX_LENGTH if setup.trainer.name is None else cut.limit
        if self.spec.training.open_length_limit:
            self.limit = None
        self.examples = self.over = self.lost = self.longest = self.whole = self.ends = 0
        self.media = Media()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the examples longer than the trainer's default, and what the cut takes of them:
        ends and whole answers.
        """
        lengths = batch.lengths
        self.examples += len(lengths)
        self.media += batch.media
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        if self.spec.max_length is not None or self.limit is None:
            return
        over = np.flatnonzero(lengths > self.limit).tolist()
        # The mask of answers costs a pass over the batch, and is needed only where something is
        # cut.
        answers = ideal_loss_mask(batch) & batch.supervised if over else batch.supervised
        for i in over:
            self.over += 1
            its = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
            stops = np.flatnonzero(batch.supervised[its] & (batch.source[its] == Source.STOP))
            self.ends += bool(len(stops)) and int(stops[-1]) >= self.limit
            part = answers[batch.offsets[i] : batch.offsets[i + 1]]
            self.whole += bool(part.any()) and not part[: self.limit].any()
            self.lost += int(
                batch.supervised[batch.offsets[i] + self.limit : batch.offsets[i + 1]].sum()
            )
            if len(self.cases) < MAX_CASES:
                self.cases.append(case_in_example(batch, i, self.limit, f"{lengths[i]:,} tokens"))

    def unmet(self) -> Unmet | None:
        """Unmet where there is no example, the length is not left to a default, or the tokens of
        media are not counted.
        """
        if not self.examples:
            return NO_EXAMPLE
        if self.spec.training.open_length_limit and self.spec.max_length is None:
            return LIMIT_IS_OPEN
        left_to_default = self.spec.max_length is None and self.limit is not None
        return explain_uncounted_tokens(self.media, is_named=False) if left_to_default else None

    def measurement_if_clean(self) -> Measurement | str:
        """The number of examples longer than the trainer's default; a text where max_length is set
        or the trainer cuts nothing.
        """
        if self.spec.max_length is not None:
            return f"max_length is set: {self.spec.max_length:,} tokens"
        if self.limit is None:
            trainer = self.setup.trainer.name_in_reports
            return (
                f"{trainer} cuts nothing by default; the longest example has {self.longest:,}"
                " tokens"
            )
        what = f"examples longer than the default of {self.limit:,} tokens"
        return make_count_measurement(
            what, self.over, self.examples, f" (the longest has {self.longest:,})"
        )

    def findings(self) -> Iterator[Finding]:
        if self.over:
            trainer = self.setup.trainer
            cut = trainer.cut.value
            does = {"drop": "leaves them out", "both": "cuts prompts and answers"}.get(
                cut.action, "cuts them"
            )
            who = "TRL cuts them" if trainer.name is None else f"{trainer.name_in_reports} {does}"
            if cut.action != "drop" and is_nearly_all(self.whole, self.examples):
                yield self._finding_on_lost_answers()
                return
            yield self.finding(
                f"{self.over:,} of {self.examples:,} examples are longer than {self.limit:,} tokens, but no"
                f" {cut.setting} is set: {who} by default"
                + (f", and {self.whole:,} lose their whole answer" if self.whole else ""),
                f"set {cut.setting} to {self.longest:,} (the longest example), or as high as memory allows, in the"
                " trainer's settings; for this check, pass --max-length",
                evidence=[
                    f"{self.lost:,} supervised tokens are past the cut",
                    *self._evidence_of_lost_ends(cut.action),
                ],
                cases=self.cases,
                count=self.over,
                total=self.examples,
            )

    def _evidence_of_lost_ends(self, action: str) -> Iterator[str]:
        """How many rows lose their last stop token, where the trainer cuts rows and leaves none out."""
        if self.ends and action != "drop":
            yield f"{self.ends:,} of {self.examples:,} examples lose the stop token of their last answer"
            yield ENDS_ARE_LOST

    def _finding_on_lost_answers(self) -> Finding:
        """The finding that nearly no row keeps a token of its answer."""
        trainer = self.setup.trainer
        setting = trainer.cut.value.setting
        whose = "TRL" if trainer.name is None else trainer.name_in_reports
        return self.finding(
            f"{self.whole:,} of {self.examples:,} rows lose their whole answer: it is after the cut at"
            f" {self.limit:,} tokens ({whose}'s default {setting})",
            f"set {setting} to {self.longest:,} (the longest row), or as high as memory allows, in the trainer's"
            " settings, or shorten the prompts: only the prompt is left of such rows",
            severity="error",
            evidence=[f"{self.lost:,} supervised tokens are past the cut"],
            cases=self.cases,
            count=self.whole,
            total=self.examples,
        )
