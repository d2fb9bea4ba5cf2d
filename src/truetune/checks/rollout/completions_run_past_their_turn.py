"""Completions continue after the token that ends a turn.

## What it does

Looks in each completion for the stop token that the chat template writes after an answer, where the sampler does not
stop at it, and counts the completions that continue after it.

## Why it is bad

Everything after the end of the turn is a conversation that the model makes up. It is rewarded and trained with the
answer, completions reach their limit, and reward functions read the last number of a text that is no answer.

## Example

```python
tokenizer.eos_token = "<|pad|>"
often = {"sequence_bias": [[[3], 8.0]]}
run = grpo(trl.GRPOTrainer, model=tiny_model(eos_token_id=0), processing_class=tokenizer, generation_kwargs=often)
```

## Use instead

```python
run = grpo(trl.GRPOTrainer)
```

## Fix safety

Set `tokenizer.eos_token` to the template's stop token, or list it in `model.generation_config.eos_token_id`.

## References

- huggingface/trl#3046, huggingface/open-r1#271
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.auditing.rollout_run import Completion, RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rollout.evidence.reasons_rollouts_cannot_judge import NO_SAMPLED_IDS
from truetune.checks.rule import RolloutRule

NO_TERMINATOR = Unmet("the chat template has no token that ends a turn, or there is no template")


class CompletionsRunPastTheirTurn(RolloutRule):
    code = "ROL007"
    fault = Fault.GENERATION_PASSES_TRAINED_STOP
    severity = "error"
    symptoms = ("reward-does-not-rise", "reward-rises-model-is-worse")

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.examined = 0
        terminator = subject.probes.terminator if subject.probes else None
        self.end_of_turn = terminator.token if terminator else None

    def unmet(self) -> Unmet | None:
        if self.end_of_turn is None:
            return super().unmet() or NO_TERMINATOR
        return super().unmet() or (None if self.examined else NO_SAMPLED_IDS)

    def findings(self) -> Iterator[Finding]:
        if self.end_of_turn is None:
            return
        cases: list[Case] = []
        for completion in self.subject.completions():
            if completion.length is None:
                continue
            self.examined += 1
            behind = _tokens_after_first(completion, self.end_of_turn.id)
            if behind:
                cases.append(
                    Case(f"{completion.place}: {behind:,} tokens after {self.end_of_turn.token}")
                )
        if not cases:
            return
        yield self.finding(
            f"{len(cases):,} of {self.examined:,} completions continue after {self.end_of_turn.token}"
            f" ({self.end_of_turn.id}), with which the chat template ends a turn",
            f"let the sampler stop at it: tokenizer.eos_token = {self.end_of_turn.token!r}, or list"
            f" {self.end_of_turn.id} in model.generation_config.eos_token_id",
            cases=cases,
            count=len(cases),
            total=self.examined,
        )

    def measurement_if_clean(self) -> Measurement:
        """How many completions continue."""
        return make_count_measurement(
            "completions that continue after the end of their turn", 0, self.examined
        )


def _tokens_after_first(completion: Completion, token: int) -> int:
    """How many tokens follow the first of these in a completion; 0 where there is none, or the sampler stops at it."""
    sampled = completion.sampled or ()
    if token in completion.step.settings.sampler_stops or token not in sampled:
        return 0
    return len(sampled) - 1 - sampled.index(token)
