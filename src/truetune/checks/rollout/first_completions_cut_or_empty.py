"""All of the first completions are cut at the limit, or many of them are empty.

## What it does

Counts the completions without a stop token of the sampler, and those that hold a stop token alone. It fires where all
of at least 8 are cut, or where half of at least 8 are empty.

## Why it is bad

A cut answer has no final result, so its reward says nothing of it, and the policy never sees itself stop. An empty one
comes of a prompt that ends with a stop, or of a model that was trained on empty answers.

## Example

```python
run = grpo(trl.GRPOTrainer, model=tiny_model(eos_token_id=3), max_completion_length=6)
```

## Use instead

```python
run = grpo(trl.GRPOTrainer)
```

## Fix safety

Raise `max_completion_length` first. Where longer answers are cut as well, see that the model stops at all (`truetune
sample`), and that the sampler knows its stop token.

## References

- huggingface/trl#5697; Yu et al. 2025 (DAPO), arXiv 2503.14476, section 3.4
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.auditing.rollout_run import RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement
from truetune.checks.rollout.evidence.reasons_rollouts_cannot_judge import NO_ENDS
from truetune.checks.rule import RolloutRule

# Chosen, not measured: eight answers are two groups of four. A model that ends one answer in five ends one of eight in
# five runs of six.
MIN_COMPLETIONS = 8
MIN_EMPTY_SHARE = 0.5
TOO_FEW = Unmet(f"fewer than {MIN_COMPLETIONS} completions were sampled")


class FirstCompletionsCutOrEmpty(RolloutRule):
    code = "ROL017"
    fault = Fault.ANSWERS_CUT_AT_TOKEN_LIMIT
    severity = "warning"
    symptoms = ("reward-does-not-rise",)
    moot_where = ("completions-run-past-their-turn",)

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        known = [one for one in subject.completions() if one.is_cut is not None]
        self.examined = len(known)
        self.cut = sum(bool(one.is_cut) and bool(one.sampled) for one in known)
        self.empty = sum(not one.is_cut and len(one.sampled or ()) <= 1 for one in known)

    def unmet(self) -> Unmet | None:
        if not self.examined:
            return super().unmet() or NO_ENDS
        return TOO_FEW if self.examined < MIN_COMPLETIONS else None

    def findings(self) -> Iterator[Finding]:
        if self.examined < MIN_COMPLETIONS:
            return
        if self.cut == self.examined:
            limit = self.subject.steps[0].settings.max_completion_length
            yield self.finding(
                f"all {self.examined:,} completions are cut at {limit:,} tokens, none has a stop token",
                "raise max_completion_length, and see that the model ends its answers (truetune sample)",
                count=self.cut,
                total=self.examined,
            )
        if self.empty >= MIN_EMPTY_SHARE * self.examined:
            yield self.finding(
                f"{self.empty:,} of {self.examined:,} completions are empty: a stop token is all that was sampled",
                "look at the prompt that is sampled from: it should end with the generation prompt, and with no stop"
                " token",
                count=self.empty,
                total=self.examined,
            )

    def measurement_if_clean(self) -> Measurement:
        """How many completions were cut, and how many are empty."""
        return Measurement(
            f"completions that were cut: {self.cut:,} of {self.examined:,}, that are empty: {self.empty:,}",
            self.cut,
            self.examined,
        )
