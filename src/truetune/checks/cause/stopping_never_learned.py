"""The model does not stop because no stop token was learned.

## What it does

Reads the probability of a trained stop token after the reference answers, under the model and under its base. It fires
where at least half of the answers do not stop and the median of this probability is below 0.5: an error where it is
below 0.05 and not ten times that of the base, else a warning, for then stopping was learned in part. Where the base was
not asked, it is a warning that names no cause: the base may be what does not stop. It is silent where the model babbles
and knows the reference answers no better, or its base babbles too: then no single token is what it lacks.

## Why it is bad

After a whole reference answer nothing is left to say. A model that has learned to stop stops there, with a probability
near 1. Where it has not, no setting of the server helps: every answer runs to the limit, and says anything.

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

There is no automatic fix: the model is trained again, with labels that hold the stop token of each answer (`truetune
run -- COMMAND` shows them). A pad token that is the stop token is masked with the padding by most collators.

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
                "no stop token is known to be trained",
                "ask rows with references, or a run of truetune train",
            )
        if subject.stopping is None:
            return STOPPING_UNKNOWN
        is_learned = subject.stopping.probability >= LEARNED_STOP_PROBABILITY
        if is_learned or not babbles_and_finds_references_unlikely(subject):
            return None
        return Unmet(
            "the model babbles and does not know the references either: no single token is what it"
            " lacks"
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
                "ask the base too (--base), and see whether the labels hold the stop token"
                " (truetune run -- COMMAND)",
                is_never=is_unlikely,
            )
        # The second limit: ten times next to nothing is nothing.
        is_raised = (
            stopping.probability > MIN_RISE_OVER_BASE * base.probability
            and stopping.probability > UNLEARNED_STOP_PROBABILITY / MIN_RISE_OVER_BASE
        )
        is_never = is_unlikely and not is_raised
        what = "was never learned" if is_never else "was learned in part only"
        if base.probability >= LEARNED_STOP_PROBABILITY:
            what = "was unlearned"
        remedy = "train longer, on answers that end with their stop token"
        if is_never:
            remedy = (
                "train again with the stop token of each answer in the labels (truetune run --"
                " COMMAND shows them)"
            )
        return StopState(what, remedy, is_never)

    def _stop_evidence(self, stopping: StopEstimate) -> Iterator[str]:
        """What the probability was taken from, that of the base, and a pad token that masks the stop token."""
        subject, base = self.subject, self.subject.base_stopping
        yield f"medians over {stopping.references} references; rank 1 is the likeliest token"
        if base:
            yield f"under the base it is {describe_stop_probability(base)}"
        else:
            yield "the base was not asked"
        if subject.pad is not None and subject.pad in subject.trained:
            yield (
                f"the pad token is {subject.pad} too: a collator that masks padding takes it out of"
                " every label"
            )
