"""Answers do not stop by themselves.

## What it does
Counts the answers that end with a stop token, among prompts whose reference fits within the limit on new tokens. It
fires in the second half of a run, and at its end, if significantly more than 40 % do not stop. It is an error if none
of 8 or more stops and the probability of a stop token after the reference is below 0.001: stopping was never learned,
though the loss on the content has fallen by 10 % (if that is known). Answers that continue with the prompts' own marker
(`### Question:`) and another question show the same without a probability; the help then begins with the stop token. If
that probability is high, stopping was learned and the answers never reach that point: an info.

## Why it is bad
A served model talks until its limit is reached. Answers end in mid-sentence, or in a second question that it asks
itself. The loss does not show it: one token per answer is too little to be visible.

## Example

```yaml
finished: true
looks:
  - {step: 400, stopped: 0, stop_probability: 0.00002}
```

## Use instead

```yaml
finished: true
looks:
  - {step: 400, stopped: 8, stop_probability: 0.98}
```

## Fix safety
There is no automatic fix. Look at the labels of the first batches (`truetune run -- COMMAND`): the stop token of each
answer must have a label, and the pad token must be another one.

## References

- unslothai/unsloth#416, huggingface/peft#1672, hiyouga/LLaMA-Factory#7943
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.answers.count_bad_answers_per_pass import (
    NOT_A_NUMBER,
    UNLEARNED_STOP_PROBABILITY,
    BadAnswers,
    are_enough_and_all_bad,
    are_mostly_one_symbol,
    cases_of_samples,
    count_bad_answers,
    did_answer_not_stop,
    find_answers_with_next_turn,
    is_bad_share_surely_above,
    is_late_in_run,
    median_stop_probability,
    unmet_if_answer_ends_unknown,
)
from truetune.checks.answers.loss_curves_by_token_source import content_loss_falls
from truetune.checks.base_of_rules_on_bad_answer_shares import (
    REMEDY_FOR_CUT_THINKING,
    BadAnswerShareRule,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import NO_LIMIT, Sample, SampledRun
from truetune.generation.answers_with_unclosed_parts import are_mostly_cut_in_thinking
from truetune.settings.run_spec import Severity

# Chosen, not measured: some answers are long by nature, and the limit of a watched run is short. At half, runs with
# long answers would be warned; at double, only those that never stop.
TOLERATED = 0.4
# P(stop) after the reference of a model that knows it: more likely than all other tokens together.
LEARNED_STOP_PROBABILITY = 0.5

SUPERVISE = (
    "train with a label on the stop token of each answer, and use another token as pad token (truetune run --"
    " COMMAND shows the labels)"
)
ASK_AS_TRAINED = (
    "first check that the prompt is the one of training, with the chat template (on a server: chat.completions, not"
    " completions), since a bare question is continued, not answered (`truetune lint .` compares the scripts)"
)


class AnswersNeverStop(BadAnswerShareRule):
    code = "ANS001"
    fault = Fault.MODEL_DOES_NOT_END_ITS_ANSWERS
    symptoms = ("never-stops",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    explained_by = ("temperature", "model", "stop")
    tolerated = TOLERATED
    called = "do not stop by themselves"
    moot_where = ("answers-are-cut-off",)

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Did the answer not stop by itself?

        None if its limit was too short for its reference, or if nobody knows what ended it.
        """
        return did_answer_not_stop(self.subject, sample)

    def unmet(self) -> Unmet | None:
        unknown_ends = unmet_if_answer_ends_unknown(self.subject)
        if unknown_ends is not None:
            return unknown_ends
        unmet = super().unmet()
        if unmet is self.untold:
            samples = self.subject.looks[-1].samples
            was_cut = not any(sample.scores.stopped for sample in samples)
            # A watched run keeps its answers short on purpose: nobody asked for more there.
            is_only_pass = len(self.subject.looks) == 1
            return Unmet(
                f"none of {len(samples):,} references fits within {self.subject.limit} tokens, at which the answers"
                " were cut",
                "raise --max-new-tokens",
                asked=was_cut and is_only_pass,
            )
        bad_answers = count_bad_answers(self.subject, self.is_bad_answer)
        if unmet is not None and bad_answers is not None and bad_answers.best:
            return Unmet(
                f"{bad_answers.count_in_last_pass} answers {self.called}, which stop-rate-falls is about"
            )
        return unmet

    def findings(self) -> Iterator[Finding]:
        watched = self.subject
        bad_answers = count_bad_answers(watched, self.is_bad_answer)
        # Where there were fewer before, stop-rate-falls says so: one fault, one rule.
        if bad_answers is None or bad_answers.best:
            return
        if not is_late_in_run(watched) or not is_bad_share_surely_above(
            bad_answers.count_in_last_pass, TOLERATED
        ):
            return
        state = _describe_stop_state(watched, bad_answers)
        within = f" within {watched.limit} tokens" if watched.limit < NO_LIMIT else ""
        yield self.finding(
            f"{bad_answers.count_in_last_pass} answers do not stop by themselves{within}{state.addition}",
            state.remedy,
            severity=state.severity,
            evidence=[*_stop_evidence(watched, bad_answers), *bad_answers.evidence],
            cases=cases_of_samples(bad_answers.samples),
            count=bad_answers.count_in_last_pass.bad,
            total=bad_answers.count_in_last_pass.of,
            figure=bad_answers.figure("answers that do not stop"),
        )


class StopState(NamedTuple):
    """How far stopping was learned, as the finding says it."""

    addition: str
    """Behind the count in the message"""
    remedy: str
    severity: Severity


def _describe_stop_state(watched: SampledRun, bad_answers: BadAnswers) -> StopState:
    """How far stopping was learned: by P(stop) after the references, and by the loss of the contents."""
    probability = median_stop_probability(watched.looks[-1])
    if probability is not None and probability >= LEARNED_STOP_PROBABILITY:
        return StopState(
            ", though stopping is learned",
            "the answers continue beyond the end of the reference: read the samples, and look for repetition"
            " (duplicate rows, too many epochs)",
            "info",
        )
    # The stop token is learned with the contents: while these are not, its absence says nothing.
    if not content_loss_falls(watched):
        return StopState(
            ", but the content is hardly learned yet",
            "train longer, or with a higher learning rate",
            "warning",
        )
    if are_mostly_cut_in_thinking(sample.answer.text for sample in bad_answers.samples):
        return StopState(
            ", and are cut off inside their reasoning", REMEDY_FOR_CUT_THINKING, "warning"
        )
    next_turn = find_answers_with_next_turn(watched, bad_answers)
    remedy = SUPERVISE
    if are_mostly_one_symbol(bad_answers.samples):
        remedy = NOT_A_NUMBER
    elif next_turn is not None:
        remedy = next_turn.remedy
    elif probability is None:
        remedy = f"{ASK_AS_TRAINED}; otherwise {SUPERVISE}"
    is_unlearned = probability is not None and probability < UNLEARNED_STOP_PROBABILITY
    is_proved = is_unlearned and are_enough_and_all_bad(bad_answers)
    return StopState("", remedy, "error" if is_proved else "warning")


def _stop_evidence(watched: SampledRun, bad_answers: BadAnswers) -> Iterator[str]:
    """What these answers and their references show besides."""
    probability = median_stop_probability(watched.looks[-1])
    if probability is not None:
        yield f"median probability of the stop token after the reference: {probability:.2g}"
    next_turn = find_answers_with_next_turn(watched, bad_answers)
    if next_turn is not None:
        yield next_turn.evidence
    looped = sum(sample.scores.looped for sample in bad_answers.samples)
    if looped:
        yield f"{looped} of them end in a loop"
