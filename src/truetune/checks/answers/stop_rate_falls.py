"""Fewer answers stop by themselves than earlier in the run.

## What it does
Counts, in each sampling pass, the answers that end with a stop token, among prompts whose reference fits within the
limit on new tokens. It fires if the last pass has significantly fewer of them than the best earlier one (by chance in
less than 1 of 40 runs: from all to 3 of 8, or at the fifth pass to 2 of 8). It is an error if none of 8 or more answers
stops any more and the probability of a stop token after the reference has fallen below 0.001, otherwise a warning.

## Why it is bad
The model could stop, and the training unteaches it. Labels without stop tokens do that: the content is learned, but its
end is not, so anything may follow the end.

## Example

```yaml
looks:
  - {step: 0, stopped: 7, stop_probability: 0.6}
  - {step: 100, stopped: 1, stop_probability: 0.0004}
```

## Use instead

```yaml
looks:
  - {step: 0, stopped: 7, stop_probability: 0.6}
  - {step: 100, stopped: 8, stop_probability: 0.97}
```

## Fix safety
There is no automatic fix. Look at the labels of the first batches (`truetune run -- COMMAND`): the stop token of each
answer must have a label, and the pad token must be another one.

## References

- mlabonne/llm-course#33, huggingface/peft#1672; Fisher 1922, doi:10.2307/2340521
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.answers.count_bad_answers_per_pass import (
    UNLEARNED_STOP_PROBABILITY,
    BadAnswers,
    are_enough_and_all_bad,
    cases_of_samples,
    count_bad_answers,
    did_answer_not_stop,
    median_stop_probability,
    unmet_if_answer_ends_unknown,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import ONE_PASS
from truetune.checks.rule import AnswersRule

# Chosen to fit a line each.
SHOWN_COUNTS = 4
SHOWN_STEPS = 12


class StopRateFalls(AnswersRule):
    code = "ANS002"
    fault = Fault.MODEL_DOES_NOT_END_ITS_ANSWERS
    symptoms = ("never-stops",)
    severity = "error"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet() or unmet_if_answer_ends_unknown(self.subject)
        if unmet is not None:
            return unmet
        endless = self._count_endless_answers()
        if endless is None:
            return Unmet(
                f"no reference fits within {self.subject.limit} tokens", "raise --max-new-tokens"
            )
        return None if len(endless.counts) > 1 else ONE_PASS

    def measurement_if_clean(self) -> str:
        """How many answers stop by themselves, in each of the last passes."""
        endless = self._count_endless_answers()
        assert endless is not None
        by_step = ", ".join(
            f"{count.of - count.bad} of {count.of} at step {count.step:,}"
            for count in endless.counts[-SHOWN_COUNTS:]
        )
        return f"answers that stop by themselves: {by_step}"

    def _count_endless_answers(self) -> BadAnswers | None:
        """Answers that did not stop, by sampling pass; None where the last one has none that can be judged."""
        return count_bad_answers(
            self.subject, lambda sample: did_answer_not_stop(self.subject, sample)
        )

    def findings(self) -> Iterator[Finding]:
        watched = self.subject
        endless = self._count_endless_answers()
        if endless is None or endless.best is None:
            return
        by_step = [(look.step, median_stop_probability(look)) for look in watched.looks]
        probabilities = [
            (step, probability) for step, probability in by_step if probability is not None
        ]
        evidence = []
        is_lost = False
        if probabilities:
            line = ", ".join(
                (f"{p:.2g} at step {step:,}") for step, p in probabilities[-SHOWN_STEPS:]
            )
            evidence.append(f"median probability of the stop token after the reference: {line}")
            # Answers may fail to stop for their length; only where P(stop) is gone too was it unlearned.
            is_lost = probabilities[-1][1] < UNLEARNED_STOP_PROBABILITY and are_enough_and_all_bad(
                endless
            )
        yield self.finding(
            f"{endless.count_in_last_pass} answers do not stop by themselves{endless.best_earlier_count_in_words}",
            "train with a label on the stop token of each answer, and use another token as pad token (truetune run"
            " -- COMMAND shows the labels)",
            severity="error" if is_lost else "warning",
            evidence=[*evidence, *endless.evidence],
            cases=cases_of_samples(endless.samples),
            count=endless.count_in_last_pass.bad,
            total=endless.count_in_last_pass.of,
            figure=endless.figure("answers that do not stop"),
        )
