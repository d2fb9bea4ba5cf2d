"""The loss falls, and the answers come no nearer to their references.

## What it does

Compares the answers of the first and the last look with their references (token-level F1, prompt by prompt), in the
second half of a run, on 8 or more prompts that are not trained on, where the loss of the content has fallen by a fifth.
It fires where the overlap has fallen more than chance makes it (warning), or has surely not risen by 0.02 (note). Runs
that learn preferences are left alone: their loss is not one of the references.

## Why it is bad

What the loss measures is not what is wanted when the model is used: it is served with another prompt than it is
trained with, it learns its rows by heart, or the loss falls on tokens that no one asks for (prompts, templates).

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

There is no automatic fix: compare the prompt that is trained with the one that is served (`truetune rehearse`), and
the loss of rows that are held out.

## References

- unslothai/unsloth#1275
- Rajpurkar et al. 2016 (the F1 of tokens), arXiv 1606.05250; the t interval: Student 1908, doi:10.2307/2331554
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from statistics import mean, stdev

from truetune.checks.answers.bad_answers import ENOUGH, cases, late
from truetune.checks.answers.losses import content, ends
from truetune.checks.counted_answers import MORE
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.checks.unmet_reasons import ONE_PASS
from truetune.generation.answer_samples import Sample

FALL, RISE, GOOD = 0.8, 0.02, 0.8
"""The loss ends below so much of its beginning; an overlap rises by so much; and is good from here on."""
WIDTH = 2.4
"""Standard errors to each side: 95 % of Student's t with 7 degrees of freedom"""


class AnswersDoNotImprove(AnswersRule):
    code = "ANS009"
    severity = "warning"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        watched, losses = self.subject, content(self.subject)
        if len(watched.looks) < 2:
            return ONE_PASS
        if len(losses) < 2:
            return Unmet(
                "the losses by source were not recorded",
                "train with truetune train, or AuditCallback",
            )
        if not late(watched):
            return Unmet("it is early in the run")
        pairs = _pairs(watched.looks[0].samples, watched.looks[-1].samples)
        if len(pairs) < ENOUGH:
            return Unmet(
                f"{len(pairs):,} prompts that are not trained on have a reference, and it takes"
                f" {ENOUGH}",
                MORE,
            )
        first, last = ends(losses)
        return (
            Unmet(f"the loss has not fallen by a fifth: {first:.3g} to {last:.3g}")
            if last > FALL * first
            else None
        )

    def figure(self) -> str:
        pairs = _pairs(self.subject.looks[0].samples, self.subject.looks[-1].samples)
        before, after = (mean(values) for values in zip(*pairs, strict=True))
        return (
            f"the overlap with the reference goes from {before:.2f} to {after:.2f} over"
            f" {len(pairs):,} prompts"
        )

    def findings(self) -> Iterator[Finding]:
        watched = self.subject
        losses = content(watched)
        if len(watched.looks) < 2 or len(losses) < 2 or not late(watched):
            return
        first, last = ends(losses)
        pairs = _pairs(watched.looks[0].samples, watched.looks[-1].samples)
        if last > FALL * first or len(pairs) < ENOUGH:
            return
        changes = [after - before for before, after in pairs]
        error = WIDTH * stdev(changes) / sqrt(len(changes))
        now = mean(after for _, after in pairs)
        fell = mean(changes) + error < 0
        if now >= GOOD or not (fell or mean(changes) + error < RISE):
            return
        yield self.finding(
            f"the loss falls from {first:.3g} to {last:.3g}, and the answers come no nearer to"
            " their references",
            "compare the prompt that is trained with the served one (truetune rehearse), and the"
            " held-out loss",
            severity="warning" if fell else "info",
            evidence=[
                f"overlap with the reference {mean(before for before, _ in pairs):.2f} at step "
                f"{watched.looks[0].step:,}, {now:.2f} at step {watched.looks[-1].step:,}; change "
                f"{mean(changes):+.2f} with an error of {error:.2f} (95 %), {len(pairs)} prompts"
            ],
            cases=cases(watched.looks[-1].samples),
        )


def _pairs(first: Sequence[Sample], last: Sequence[Sample]) -> list[tuple[float, float]]:
    """The overlap of the same prompts then and now, of those that are not trained on."""
    then = {sample.prompt.ids: sample.scores.overlap for sample in first}
    return [
        (before, sample.scores.overlap)
        for sample in last
        if not sample.prompt.seen
        and sample.scores.overlap is not None
        and (before := then.get(sample.prompt.ids)) is not None
    ]
