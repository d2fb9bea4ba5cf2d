"""Completions that were cut are treated otherwise than `mask_truncated_completions` says.

## What it does

Takes the completions whose last sampled token is none of the sampler's stops, and checks that they are in the
loss, and whether those that ended are.

## Why it is bad

With the setting, cut completions shall not be punished for what they could not finish; in the loss they are. Without
it they shall be in the loss: left out, the policy never learns that an answer has to end.

## Example

```python
class MaskedAgain(trl.GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        pad = self.processing_class.pad_token_id
        output["completion_mask"] = (output["completion_ids"] != pad).int()
        return output

run = grpo(MaskedAgain, mask_truncated_completions=True)
```

## Use instead

```python
run = grpo(trl.GRPOTrainer, mask_truncated_completions=True)
```

## Fix safety

There is no automatic fix.

## References

- Yu et al. 2025 (DAPO), arXiv 2503.14476, section 3.4; huggingface/trl#3248, huggingface/trl#4976
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


class CutCompletionsAgainstSetting(RolloutRule):
    code = "ROL005"
    fault = Fault.ANSWERS_CUT_AT_TOKEN_LIMIT
    severity = "warning"
    symptoms = ("reward-does-not-rise",)
    moot_where = ("stops-unknown-to-trainer",)

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.examined = 0

    def unmet(self) -> Unmet | None:
        return super().unmet() or (None if self.examined else NO_ENDS)

    def findings(self) -> Iterator[Finding]:
        cases: list[Case] = []
        shall_mask = False
        for completion in self.subject.completions():
            # Of an empty completion nothing can be in the loss.
            if completion.is_cut is None or not completion.sampled:
                continue
            self.examined += 1
            shall_mask = completion.step.settings.mask_truncated_completions
            is_in_loss = bool(completion.in_loss.any())
            if is_in_loss == (shall_mask and completion.is_cut):
                cases.append(
                    Case(
                        f"{completion.place} {'was cut' if completion.is_cut else 'ended'}, and is"
                        f" {'in' if is_in_loss else 'not in'} the loss"
                    )
                )
        if not cases:
            return
        yield self.finding(
            f"{len(cases):,} of {self.examined:,} completions are treated otherwise than"
            f" mask_truncated_completions={shall_mask} says",
            "leave exactly the completions out that have no stop token"
            if shall_mask
            else "leave all completions in the loss, or set mask_truncated_completions=True",
            cases=cases,
            count=len(cases),
            total=self.examined,
        )

    def measurement_if_clean(self) -> Measurement:
        """How many completions are treated otherwise."""
        return make_count_measurement(
            "completions, cut or ended, that are treated otherwise than the setting says",
            0,
            self.examined,
        )
