"""The sampler stops at ids that the trainer does not know as stops.

## What it does

Compares the ids at which the sampler ends a completion with those by which the trainer tells that it ended, and
counts the completions that ended at one that the trainer does not know.

## Why it is bad

Such a completion counts as cut. It is masked, or padding after it is trained as if it were sampled, and the share
of cut completions in the log is wrong. A model with several stop ids (`<|eot_id|>` and `<|end_of_text|>`) and a trainer
that reads the tokenizer's one is the usual case.

## Example

```python
run = grpo(trl.GRPOTrainer, model=tiny_model(), generation_kwargs={"eos_token_id": list(range(3, 900, 8))})
```

## Use instead

```python
run = grpo(trl.GRPOTrainer)
```

## Fix safety

Set the ids in the model's `generation_config.eos_token_id` before the trainer is made: it reads them there.

## References

- huggingface/trl#7039
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.auditing.rollout_run import RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rollout.evidence.reasons_rollouts_cannot_judge import NO_ENDS
from truetune.checks.rule import RolloutRule

MAX_NAMED_IDS = 8
"""Ids that a message names"""


class StopsUnknownToTrainer(RolloutRule):
    code = "ROL006"
    fault = Fault.GENERATION_PASSES_TRAINED_STOP
    severity = "error"
    symptoms = ("reward-does-not-rise", "agent-training")

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.ended = 0
        self.examined = 0

    def unmet(self) -> Unmet | None:
        return super().unmet() or (None if self.examined else NO_ENDS)

    def findings(self) -> Iterator[Finding]:
        cases: list[Case] = []
        unknown: set[int] = set()
        for completion in self.subject.completions():
            if completion.is_cut is None or not completion.step.settings.trainer_stops:
                continue
            self.examined += 1
            if completion.is_cut or not completion.sampled:
                continue
            self.ended += 1
            last = completion.sampled[-1]
            if last not in completion.step.settings.trainer_stops:
                unknown.add(last)
                cases.append(
                    Case(f"{completion.place} ends with {self.subject.text([last])!r} ({last})")
                )
        if not cases:
            return
        named = ", ".join(map(str, sorted(unknown)[:MAX_NAMED_IDS]))
        more = ", ..." if len(unknown) > MAX_NAMED_IDS else ""
        yield self.finding(
            f"{len(cases):,} of {self.ended:,} completions that ended count as cut: the trainer does not know their"
            f" stop ids ({named}{more})",
            "set all stop ids in model.generation_config.eos_token_id before the trainer is made",
            cases=cases,
            count=len(cases),
            total=self.ended,
        )

    def measurement_if_clean(self) -> Measurement:
        """How many completions ended at an id that the trainer does not know."""
        return make_count_measurement(
            "completions that ended at an id that the trainer does not know",
            0,
            self.examined,
            f" ({self.ended:,} ended)",
        )
