"""The answers do not stop by themselves.

## What it does

Counts the answers that end with a stop token, among prompts whose reference fits within the limit of new tokens. It
fires in the second half of a run, and at its end, where surely more than 4 of 10 do not; an error where of 8 or more
none does and the probability of a stop token behind the reference is below 0.001: it was never learned, though the loss
of the contents has fallen by a tenth where it is known. Answers that go on with the marker of the prompts (`###
Question:`) and a question of their own show the same without a probability: the help then begins with the stop token.
Where that probability is high, stopping was learned, and the
answers never come to the place: a note.

## Why it is bad

A served model talks until its limit is reached: answers end in the middle of a sentence, or in a second question that
it asks itself. The loss does not show it: one token of each answer is too few to be seen in it.

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

There is no automatic fix. Look at the labels of the first batches (`truetune run -- COMMAND`): the stop token of
each answer must be supervised, and the pad token must not be it.

## References

- unslothai/unsloth#416, huggingface/peft#1672, hiyouga/LLaMA-Factory#7943
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.answers.bad_answers import (
    all_of,
    cases,
    counted,
    ends_unknown,
    late,
    often,
    runs_on,
    stop_probability,
    writes_next_turn,
)
from truetune.checks.answers.losses import falls
from truetune.checks.counted_answers import CountedAnswersRule
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import NO_LIMIT, Sample

TOLERATED = 0.4
"""The share of answers that may run on: some are long by nature."""
NEVER, LEARNED = 0.001, 0.5
"""P(stop) behind the reference of a model that knows nothing of it, and of one that does"""

SUPERVISE = "supervise the stop token of each answer, and pad with another (truetune run -- COMMAND shows labels)"
ASK_AS_TRAINED = (
    "see first that it is asked as it was trained, by the chat template (of a server by chat.completions):"
    " what is given a bare question continues it (`truetune lint .` compares the scripts)"
)


class AnswersNeverStop(CountedAnswersRule):
    code = "ANS001"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    explained_by = ("temperature", "model", "stop")
    tolerated = TOLERATED
    called = "do not stop by themselves"
    moot_where = ("answers-are-cut-off",)

    def bad(self, sample: Sample) -> bool | None:
        """None where it could not have stopped like its reference, or nobody knows what ended it."""
        return runs_on(self.subject, sample)

    def unmet(self) -> Unmet | None:
        if unmet := ends_unknown(self.subject):
            return unmet
        unmet, samples = (
            super().unmet(),
            self.subject.looks[-1].samples if self.subject.looks else (),
        )
        if unmet is self.untold:
            told = (
                f"no reference of {len(samples):,} fits within {self.subject.limit} tokens, where"
                " answers were cut"
            )
            cut = not any(sample.scores.stopped for sample in samples)
            only_pass = (
                len(self.subject.looks) == 1
            )  # a watched run keeps its answers short on purpose
            return Unmet(told, "raise --max-new-tokens", asked=cut and only_pass)
        found = counted(self.subject, self.bad)
        if unmet is not None and found is not None and found.best:
            return Unmet(f"{found.last} answers {self.called}, which stop-rate-falls is about")
        return unmet

    def findings(self) -> Iterator[Finding]:
        watched = self.subject
        found = counted(watched, self.bad)
        if found is None or found.best or not late(watched) or not often(found.last, TOLERATED):
            return
        behind = stop_probability(watched.looks[-1])
        learned = behind is not None and behind >= LEARNED
        slow = not falls(watched)
        never = behind is not None and behind < NEVER and all_of(found) and not slow
        within = f" within {watched.limit} tokens" if watched.limit < NO_LIMIT else ""
        next_turn = writes_next_turn(watched, found)
        looped = sum(sample.scores.looped for sample in found.samples)
        yield self.finding(
            f"{found.last} answers do not stop by themselves{within}"
            + (
                ", though stopping is learned"
                if learned
                else ", but the contents are hardly learned yet"
                if slow
                else ""
            ),
            (
                "answers run past the place where the reference ends: look at the samples, and at"
                " repetition"
                if learned
                else (
                    "train longer, or with a higher learning rate"
                    if slow
                    else next_turn.remedy
                    if next_turn is not None
                    else SUPERVISE
                    if behind is not None
                    else f"{ASK_AS_TRAINED}; else {SUPERVISE}"
                )
            ),
            severity="error" if never else "info" if learned else "warning",
            evidence=[
                *(
                    [f"P(stop) behind the reference: {behind:.2g} (median)"]
                    if behind is not None
                    else []
                ),
                *([next_turn.evidence] if next_turn is not None else []),
                *([f"{looped} of them end in a loop"] if looped else []),
                *found.evidence,
            ],
            cases=cases(found.samples),
            count=found.last.bad,
            total=found.last.of,
            figure=found.figure("answers that do not stop"),
        )
