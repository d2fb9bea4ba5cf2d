"""The model does not stop because no stop token was learned.

## What it does

Reads the probability of a trained stop token behind the reference answers, under the model and under its base. It fires
where at least half of the answers do not stop and the median of this probability is below 0.5: an error where it is
below 0.05 and not ten times that of the base, else a warning, for then stopping was learned in part. Where the base was
not asked, it is a warning that names no cause: the base may be what does not stop. It is silent where the model babbles
and knows the reference answers no better, or its base babbles too: then no single token is what it lacks.

## Why it is bad

Behind a whole reference answer nothing is left to say. A model that has learned to stop stops there, with a probability
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

from truetune.checks.answers.bad_answers import cases
from truetune.checks.cause.rivals import learned_nothing
from truetune.checks.cause.symptoms import (
    UNTOLD_STOPPING,
    all_cut,
    describe_probability,
    describe_stopping,
    endless,
)
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule

if TYPE_CHECKING:
    from truetune.generation.model_evidence import StopEstimate

LEARNED, NEVER = 0.5, 0.05
RAISED = 10
"""Times the base's probability"""


class State(NamedTuple):
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
        found = self.subject
        if not (endless(found) or all_cut(found)):
            return None
        if not found.trained:
            return Unmet(
                "no stop token is known to be trained",
                "ask rows with references, or a run of truetune train",
            )
        if found.stopping is None:
            return UNTOLD_STOPPING
        if found.stopping.probability >= LEARNED or not learned_nothing(found):
            return None
        return Unmet(
            "the model babbles and does not know the references either: no single token is what it"
            " lacks"
        )

    def figure(self) -> str:
        return describe_stopping(self.subject)

    def findings(self) -> Iterator[Finding]:
        found, mine = self.subject, self.subject.stopping
        seen, cut = endless(found), all_cut(found)
        if not found.trained or not (seen or cut) or mine is None or mine.probability >= LEARNED:
            return
        if learned_nothing(found):
            return
        state = self._state(mine)
        if cut and not state.is_never:
            return
        names = " or ".join(map(str, found.trained or found.served))
        do_not_stop = f"{seen.last} answers do not stop, and " if seen else ""
        is_sure = found.base_stopping is not None
        yield self.finding(
            f"stopping {state.what}: {do_not_stop}behind the whole reference answer the probability"
            f" of {names} is {describe_probability(mine)}",
            state.remedy,
            severity="error" if state.is_never and is_sure else "warning",
            evidence=list(self._evidence()),
            cases=cases(seen.samples if seen else cut),
            count=seen.last.bad if seen else len(cut),
            total=seen.last.of if seen else len(cut),
        )

    def _state(self, mine: StopEstimate) -> State:
        """How far the tuned model learned to stop, as far as it is known from itself and its base."""
        base = self.subject.base_stopping
        if base is None:
            return State(
                "is not likely",
                "ask the base too (--base), and see whether the labels hold the stop token"
                " (truetune run -- COMMAND)",
                is_never=mine.probability < NEVER,
            )
        is_raised = (
            mine.probability > RAISED * base.probability and mine.probability > NEVER / RAISED
        )
        is_never = mine.probability < NEVER and not is_raised
        what = "was never learned" if is_never else "was learned in part only"
        if base.probability >= LEARNED:
            what = "was unlearned"
        remedy = (
            "train again with the stop token of each answer in the labels (truetune run -- COMMAND"
            " shows them)"
            if is_never
            else "train longer, on answers that end with their stop token"
        )
        return State(what, remedy, is_never)

    def _evidence(self) -> Iterator[str]:
        found, mine, base = self.subject, self.subject.stopping, self.subject.base_stopping
        if mine is not None:
            yield f"medians over {mine.references} references; rank 1 is the likeliest token"
        yield (
            f"under the base it is {describe_probability(base)}"
            if base
            else "the base was not asked"
        )
        if found.pad is not None and found.pad in found.trained:
            yield (
                f"the pad token is {found.pad} too: a collator that masks padding takes it out of"
                " every label"
            )
