"""The rewards for form rise to their maximum, while the reward for right answers stays where it was.

## What it does
Reads the mean of each reward function (`rewards/NAME/mean`). Functions with format, tag, xml, structure or pattern in
their name are about form; those with accuracy, correct, answer, math, exact, verify are about content. It warns if one
about form rises to 0.8 of its best possible value (0.5, 1, or its largest) and all about content end no higher than
they began. Functions that give 0 in every record are left to `no-reward-signal`.

## Why it is bad
The sum of the rewards rises by the form alone. Once the form is always right, groups differ by chance
alone, and nothing more is learned. Often the content is never judged: a parser that misses the answer in the new form,
or a reference in another form, gives 0 whatever the model writes.

## Example
```yaml
curve:
  reward: {from: 0.3, to: 1.05, steps: 60, noise: 0.01}
  rewards/format_reward/mean: {from: 0.2, to: 0.98, steps: 60, noise: 0.01}
  rewards/accuracy_reward/mean: {from: 0.1, to: 0.07, steps: 60, noise: 0.01}
```

## Use instead
```yaml
curve:
  reward: {from: 0.3, to: 1.6, steps: 60, noise: 0.01}
  rewards/format_reward/mean: {from: 0.2, to: 0.98, steps: 60, noise: 0.01}
  rewards/accuracy_reward/mean: {from: 0.1, to: 0.62, steps: 60, noise: 0.01}
```

## Fix safety
Try the reward for content on answers of the last steps by hand (`truetune reward MODULE:FUNCTION --data ROWS`) before
you change its weight: a larger weight on a function that never pays changes nothing.

## References
- huggingface/open-r1#255, huggingface/trl#3903 (format converges to 1, accuracy stays 0), allenai/open-instruct#659,
  StarsfieldAI/R1-V#106
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.curves_of_reward_training import ends_of_curve
from truetune.checks.rule import LogRule
from truetune.logs.robust_statistics import noise_sigma
from truetune.logs.run_log import Curve

FUNCTION_MEAN = re.compile(r"rewards/(?P<name>.+?)(?:/mean)?")
SPREAD = re.compile(r"rewards/.+/std")
FORM_WORDS = re.compile(r"format|tag|xml|structure|pattern|template", re.I)
CONTENT_WORDS = re.compile(r"accura|correct|answer|math|exact|verif|solution|result", re.I)
MIN_RECORDS = 20
"""As many as a reward that is rare at first needs to come up"""
MIN_FORM, MIN_FORM_RISE = 0.8, 0.2
"""Share of the largest value of the function, and how far it rose: a form that was right at first is not learned"""
HALF_REWARD = 0.5
"""What many functions pay for the form at most, where the answer gets 1 or 2"""
MIN_CONTENT_GAIN = 0.05
"""Of a reward between 0 and 1. Chosen, not measured: less is hardly seen in a run of 100 steps"""


class OnlyTheFormatIsLearned(LogRule):
    code = "LOG184"
    fault = Fault.REWARD_RISES_WITHOUT_THE_TASK
    symptoms = ("reward-rises-model-is-worse", "reward-does-not-rise", "nothing-is-learned")
    severity = "warning"
    kinds = ("reinforcement",)

    def unmet(self) -> Unmet | None:
        """Also unmet where rewards for form and for content are not both logged."""
        if (unmet := super().unmet()) is not None:
            return unmet
        if self._functions(FORM_WORDS) and self._functions(CONTENT_WORDS):
            return None
        return Unmet("the log has no separate rewards for form and for right answers")

    def measurement_if_clean(self) -> str:
        """The rewards at both ends."""
        both = {**self._functions(FORM_WORDS), **self._functions(CONTENT_WORDS)}
        figures = [
            "{}: {:.2f} to {:.2f}".format(name, *ends_of_curve(one)) for name, one in both.items()
        ]
        return "; ".join(figures[:4])

    def findings(self) -> Iterator[Finding]:
        """The finding on a form that is learned alone."""
        if self.subject.kind != "reinforcement":
            return
        contents = self._functions(CONTENT_WORDS)
        learned = {
            name: one for name, one in self._functions(FORM_WORDS).items() if _is_learned(one)
        }
        if not learned or not contents or any(_gains(one) for one in contents.values()):
            return
        form_name, form = next(iter(learned.items()))
        content_name, content = next(iter(contents.items()))
        form_ends, content_ends = ends_of_curve(form), ends_of_curve(content)
        yield self.finding(
            f"{form_name} rises from {form_ends.first:.2f} to {form_ends.last:.2f}, while {content_name} goes from"
            f" {content_ends.first:.2f} to {content_ends.last:.2f}: only the form is learned",
            f"call {content_name} on answers of the last steps and on the reference in the same form (`truetune"
            " reward`): does its parser find the answer? then give the form a small weight, or pay it only for right"
            " answers",
            total=int(form.step.size),
            figure=draw_curves("rewards", {form_name: form, content_name: content}),
        )

    def _functions(self, words: re.Pattern[str]) -> Mapping[str, Curve]:
        """The mean rewards of the functions whose name has one of these words."""
        functions = {}
        for logged, curve in self.subject.curves.items():
            match = FUNCTION_MEAN.fullmatch(logged)
            is_about_form = match is not None and FORM_WORDS.search(match["name"]) is not None
            if match is None or SPREAD.fullmatch(logged) or words.search(match["name"]) is None:
                continue
            # `answer_format_reward` is about form, whatever it is a form of.
            finite = curve.finite()
            is_known = finite.step.size >= MIN_RECORDS and finite.value.any()
            if (words is FORM_WORDS) == is_about_form and is_known:
                functions[match["name"]] = finite
        return functions


def _is_learned(form: Curve) -> bool:
    """Has a reward for form risen to near its maximum?"""
    ends = ends_of_curve(form)
    highest = float(form.value.max())
    largest = HALF_REWARD if highest <= HALF_REWARD else max(1.0, highest)
    return ends.last >= MIN_FORM * largest and ends.last - ends.first >= MIN_FORM_RISE * largest


def _gains(content: Curve) -> bool:
    """Does a reward for content rise, or was it high at first?"""
    ends = ends_of_curve(content)
    scale = max(1.0, float(content.value.max()))
    gain = max(MIN_CONTENT_GAIN * scale, 2 * noise_sigma(content.value))
    return ends.last - ends.first >= gain or ends.first >= MIN_FORM * scale
