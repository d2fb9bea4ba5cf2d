"""The model does not stop because it never learned a stop token.

## What it does
Takes the probability of a trained stop token after the reference answers, under the model and under its base. It fires
if at least half of the answers do not stop and the median of this probability is below 0.5. It is an error if it is
below 0.05 and less than ten times that of the base; otherwise it is a warning, since stopping was partly learned.
Without answers of the base it is a warning that names no cause: the base may be what does not stop. It does not fire if
the model writes nonsense and the reference answers are unlikely too, or if its base writes nonsense too: then more than
one token is missing.

## Why it is bad
After a complete reference answer, nothing is left to say. A model that has learned to stop stops there, with a
probability near 1. If it has not, no server setting helps: every answer runs up to the limit.

## Example

```yaml
look: {stopped: 0, stop_probability: 0.00002}
trained: [<|im_end|>]
served: [<|im_end|>]
pad: <|im_end|>
stopping: {probability: 0.00002, rank: 811}
base_stopping: {probability: 0.00001, rank: 1033}
```

## Use instead

```yaml
look: {stopped: 8, stop_probability: 0.97}
trained: [<|im_end|>]
served: [<|im_end|>]
pad: <|pad|>
stopping: {probability: 0.97, rank: 0}
base_stopping: {probability: 0.00001, rank: 1033}
```

## Fix safety
There is no automatic fix: train again, with labels that contain the stop token of each answer (`truetune run --
COMMAND` shows them). If the pad token is the stop token, most collators mask it together with the padding; set another
pad token.

## References

- huggingface/transformers#23530, huggingface/trl#976, mlabonne/llm-course#33
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from truetune.checks.answers.count_bad_answers_per_pass import cases_of_samples
from truetune.checks.cause.count_endless_or_garbage_answers import (
    STOPPING_UNKNOWN,
    answers_if_all_cut_before_references,
    describe_stop_probability,
    describe_stopping,
    endless_answers_where_at_least_half,
)
from truetune.checks.cause.rival_causes import babbles_and_finds_references_unlikely
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule
from truetune.generation.answer_samples import Sample

if TYPE_CHECKING:
    from truetune.generation.evidence_on_causes_of_answers import StopEstimate

# P(stop) after the reference: more likely than all other tokens together.
LEARNED_STOP_PROBABILITY = 0.5
# Below it the model stops in one of 20 places where it should. Chosen: bases that saw chats have some percent without
# any training. At 0.01 most of them would count as half trained; at 0.1 half-trained models as untrained.
UNLEARNED_STOP_PROBABILITY = 0.05
# Times the base's probability from which the training did raise it. Chosen: other data moves it by a few times.
MIN_RISE_OVER_BASE = 10


class StopState(NamedTuple):
    """How far stopping was learned, in words, and what to do."""

    what: str
    remedy: str
    is_never: bool
    """The stop token is no more likely than before the training"""


class StoppingNeverLearned(CauseRule):
    code = "CAU002"
    fault = Fault.MODEL_DOES_NOT_END_ITS_ANSWERS
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    explained_by = ("model", "temperature")

    def unmet(self) -> Unmet | None:
        subject = self.subject
        if not (
            endless_answers_where_at_least_half(subject)
            or answers_if_all_cut_before_references(subject)
        ):
            return None
        if not subject.trained:
            return Unmet(
                "it is not known which stop token was trained",
                "ask rows with references, or a run of truetune train",
            )
        if subject.stopping is None:
            return STOPPING_UNKNOWN
        is_learned = subject.stopping.probability >= LEARNED_STOP_PROBABILITY
        if is_learned or not babbles_and_finds_references_unlikely(subject):
            return None
        return Unmet(
            "the model writes nonsense and finds the references unlikely too: more than a stop token is missing"
        )

    def measurement_if_clean(self) -> str:
        """How many answers do not stop, and the probability of a stop behind the references."""
        return describe_stopping(self.subject)

    def findings(self) -> Iterator[Finding]:
        subject, stopping = self.subject, self.subject.stopping
        if not subject.trained or stopping is None:
            return
        if (
            stopping.probability >= LEARNED_STOP_PROBABILITY
            or babbles_and_finds_references_unlikely(subject)
        ):
            return
        state = self._describe_stop_state(stopping)
        endless = endless_answers_where_at_least_half(subject)
        if endless is not None:
            do_not_stop = f"{endless.count_in_last_pass} answers do not stop, and "
            yield self._finding_on_samples(
                stopping, state, do_not_stop, endless.samples, endless.count_in_last_pass.of
            )
            return
        # Answers that were all cut short show nothing by themselves; then only a stop that was never learned is named.
        cut = answers_if_all_cut_before_references(subject)
        if cut and state.is_never:
            yield self._finding_on_samples(stopping, state, "", cut, len(cut))

    def _finding_on_samples(
        self,
        stopping: StopEstimate,
        state: StopState,
        do_not_stop: str,
        samples: tuple[Sample, ...],
        total: int,
    ) -> Finding:
        """The finding on `samples` of `total` answers; `do_not_stop` says of them what was seen, where anything was."""
        names = " or ".join(map(str, self.subject.trained))
        # Without the base nobody knows whether the training or the base is what does not stop.
        is_proved = state.is_never and self.subject.base_stopping is not None
        return self.finding(
            f"stopping {state.what}: {do_not_stop}after the whole reference answer the probability"
            f" of {names} is {describe_stop_probability(stopping)}",
            state.remedy,
            severity="error" if is_proved else "warning",
            evidence=list(self._stop_evidence(stopping)),
            cases=cases_of_samples(samples),
            count=len(samples),
            total=total,
        )

    def _describe_stop_state(self, stopping: StopEstimate) -> StopState:
        """How far the tuned model learned to stop, as far as it is known from itself and its base."""
        base = self.subject.base_stopping
        is_unlikely = stopping.probability < UNLEARNED_STOP_PROBABILITY
        if base is None:
            return StopState(
                "is not likely",
                "ask the base model too (--base), and check that the labels contain the stop token"
                " (truetune run -- COMMAND)",
                is_never=is_unlikely,
            )
        # The second limit: ten times next to nothing is nothing.
        is_raised = (
            stopping.probability > MIN_RISE_OVER_BASE * base.probability
            and stopping.probability > UNLEARNED_STOP_PROBABILITY / MIN_RISE_OVER_BASE
        )
        is_never = is_unlikely and not is_raised
        what = "was never learned" if is_never else "was only partly learned"
        if base.probability >= LEARNED_STOP_PROBABILITY:
            what = "was unlearned"
        remedy = "train longer, on answers that end with their stop token, with a label on it"
        if is_never:
            remedy = (
                "train again with the stop token of each answer in the labels (truetune run --"
                " COMMAND shows them)"
            )
        return StopState(what, remedy, is_never)

    def _stop_evidence(self, stopping: StopEstimate) -> Iterator[str]:
        """What the probability was taken from, that of the base, and a pad token that masks the stop token."""
        subject, base = self.subject, self.subject.base_stopping
        yield f"medians over {stopping.references} references; rank 1 is the most likely token"
        if base:
            yield f"under the base model it is {describe_stop_probability(base)}"
        else:
            yield "the base model was not asked"
        if subject.pad is not None and subject.pad in subject.trained:
            yield (
                f"the pad token is {subject.pad} too: a collator that masks padding removes it from all labels"
            )
