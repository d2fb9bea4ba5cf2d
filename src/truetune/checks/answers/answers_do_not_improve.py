"""The loss falls, but the answers do not get closer to their references.

## What it does
Compares the answers of the first and the last sampling pass with their references (token-level F1, prompt by prompt).
It does so in the second half of a run, on 8 or more prompts that are not trained on, if the loss on the content has
fallen by 20 %. It is a warning if the overlap has fallen by more than chance, and an info if it has not risen by 0.02
(upper bound of the 95 % interval). Preference training is ignored: its loss does not measure the references.

## Why it is bad
The loss does not measure what you want from the model. The model is sampled with another prompt than it is trained
with, it memorises its rows, or the loss falls on tokens that nobody asks for (prompts, templates).

## Example

```yaml
total: 100
losses:
  - {step: 10, assistant content: 2.0}
  - {step: 100, assistant content: 0.5}
looks:
  - {step: 0, overlap: [0.31, 0.28, 0.35, 0.4, 0.22, 0.3, 0.33, 0.29]}
  - {step: 100, overlap: [0.11, 0.08, 0.15, 0.1, 0.12, 0.2, 0.13, 0.09]}
```

## Use instead

```yaml
total: 100
losses:
  - {step: 10, assistant content: 2.0}
  - {step: 100, assistant content: 0.5}
looks:
  - {step: 0, overlap: [0.31, 0.28, 0.35, 0.4, 0.22, 0.3, 0.33, 0.29]}
  - {step: 100, overlap: [0.51, 0.48, 0.55, 0.5, 0.42, 0.6, 0.53, 0.39]}
```

## Fix safety
There is no automatic fix: compare the training prompt with the serving prompt (`truetune rehearse`), and look at the
loss on held-out rows.

## References

- unslothai/unsloth#1275
- Rajpurkar et al. 2016 (the F1 of tokens), arXiv 1606.05250; the t interval: Student 1908, doi:10.2307/2331554
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from statistics import mean, stdev

from truetune.checks.answers.count_bad_answers_per_pass import (
    MIN_ANSWERS,
    cases_of_samples,
    is_late_in_run,
)
from truetune.checks.answers.loss_curves_by_token_source import (
    content_losses,
    first_loss_and_last_level,
)
from truetune.checks.base_of_rules_on_bad_answer_shares import MORE
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import ONE_PASS
from truetune.checks.rule import AnswersRule
from truetune.generation.answer_samples import Sample

# The loss ends below so much of its beginning. Chosen, not measured: a fall by a fifth is more than warm-up and noise.
# At 0.9 runs that hardly learned would be blamed, at 0.6 only long ones would be judged.
MAX_SHARE_OF_FIRST_LOSS = 0.8
# An overlap (F1 of tokens) that surely rises by less does not rise: two words of a hundred.
MIN_RISE = 0.02
# From here on answers are good, and nothing is left to improve.
GOOD_OVERLAP = 0.8
# 95 % of Student's t with 7 degrees of freedom, for 8 prompts; with more it is a little too wide, which is safe.
STANDARD_ERRORS = 2.4


class AnswersDoNotImprove(AnswersRule):
    code = "ANS009"
    fault = Fault.TRAINING_DOES_NOT_IMPROVE_ANSWERS
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        watched, losses = self.subject, content_losses(self.subject)
        if len(watched.looks) < 2:
            return ONE_PASS
        if len(losses) < 2:
            return Unmet(
                "the losses by source were not recorded",
                "train with truetune train, or AuditCallback",
            )
        if not is_late_in_run(watched):
            return Unmet("it is early in the run")
        overlaps = _first_last_overlaps_of_untrained_prompts(
            watched.looks[0].samples, watched.looks[-1].samples
        )
        if len(overlaps) < MIN_ANSWERS:
            return Unmet(
                f"{len(overlaps):,} prompts that are not trained on have a reference, and it takes"
                f" {MIN_ANSWERS}",
                MORE,
            )
        first, last = first_loss_and_last_level(losses)
        if last > MAX_SHARE_OF_FIRST_LOSS * first:
            return Unmet(f"the loss has not fallen by a fifth: {first:.3g} to {last:.3g}")
        return None

    def measurement_if_clean(self) -> str:
        """The mean overlap of the answers with their references, in the first pass and in the last."""
        overlaps = _first_last_overlaps_of_untrained_prompts(
            self.subject.looks[0].samples, self.subject.looks[-1].samples
        )
        before, after = (mean(values) for values in zip(*overlaps, strict=True))
        return (
            f"the overlap with the reference goes from {before:.2f} to {after:.2f} over"
            f" {len(overlaps):,} prompts"
        )

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        watched = self.subject
        first_loss, last_loss = first_loss_and_last_level(content_losses(watched))
        overlaps = _first_last_overlaps_of_untrained_prompts(
            watched.looks[0].samples, watched.looks[-1].samples
        )
        changes = [after - before for before, after in overlaps]
        change, now = mean(changes), mean(after for _, after in overlaps)
        error = STANDARD_ERRORS * stdev(changes) / sqrt(len(changes))
        has_fallen = change + error < 0
        if now >= GOOD_OVERLAP or change + error >= MIN_RISE:
            return
        yield self.finding(
            f"the loss falls from {first_loss:.3g} to {last_loss:.3g}, but the answers do not get closer to their"
            " references",
            "compare the training prompt with the one used for sampling (truetune rehearse -- COMMAND), and look at"
            " the loss on held-out rows: if it rises, train for fewer epochs",
            severity="warning" if has_fallen else "info",
            evidence=[
                f"overlap with the reference {mean(before for before, _ in overlaps):.2f} at step "
                f"{watched.looks[0].step:,}, {now:.2f} at step {watched.looks[-1].step:,}; change "
                f"{change:+.2f} with an error of {error:.2f} (95 %), {len(overlaps)} prompts"
            ],
            cases=cases_of_samples(watched.looks[-1].samples),
        )


def _first_last_overlaps_of_untrained_prompts(
    first: Sequence[Sample], last: Sequence[Sample]
) -> list[tuple[float, float]]:
    """(first, last) overlap of the answer with its reference, for each prompt of both passes that
    is not trained on.
    """
    # Prompt by prompt: prompts differ far more from each other than one prompt does from pass to pass.
    overlap_before = {sample.prompt.ids: sample.scores.overlap for sample in first}
    overlaps = []
    for sample in last:
        before, after = overlap_before.get(sample.prompt.ids), sample.scores.overlap
        if not sample.prompt.seen and before is not None and after is not None:
            overlaps.append((before, after))
    return overlaps
