"""The tuned model has learned its prompts nearly as much as its answers.

## What it does

Compares the tokens of some prompts under the model and under its base, and those of the reference answers after them.
It fires where the prompts have gained half as many nats/token as the answers or more, at least 0.2, and beyond
chance.

## Why it is bad

Labels on prompts spend the training on questions that the model never has to write: long prompts outweigh short
answers, and a model that has learned to write questions continues with one where it should stop.

## Example

```yaml
kind: model
look: {stopped: 3}
prompt_gain: {prompt: 0.82, reference: 0.41, error: 0.06, tokens: 412, prompts: 8}
```

## Use instead

```yaml
kind: model
look: {stopped: 8}
prompt_gain: {prompt: 0.04, reference: 0.41, error: 0.03, tokens: 412, prompts: 8}
```

## Fix safety

There is no automatic fix: set the labels of the prompts to -100 (`completion_only_loss`, `assistant_only_loss`,
`train_on_responses_only`, `train_on_inputs: false`), see what is supervised (`truetune run -- COMMAND`), and train
again.

## References

- huggingface/open-r1#517, tloen/alpaca-lora#255
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.detect_prompts_in_loss_by_likelihood import (
    HELP,
    have_prompts_gained_like_answers,
)
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NOT_WITH_AND_WITHOUT
from truetune.checks.rule import CauseRule


class PromptsWereLearned(CauseRule):
    code = "CAU012"
    symptoms = ("nothing-is-learned",)
    severity = "warning"

    def unmet(self) -> Unmet | None:
        return NOT_WITH_AND_WITHOUT if self.subject.prompt_gain is None else None

    def measurement_if_clean(self) -> str:
        """How much the prompts, and the references, gained over the base, in nats/token."""
        gain = self.subject.prompt_gain
        assert gain is not None
        return (
            f"the prompts gained {gain.prompt:+.2f} nats/token over the base, the references"
            f" {gain.reference:+.2f}"
        )

    def findings(self) -> Iterator[Finding]:
        gain = self.subject.prompt_gain
        if gain is None or not have_prompts_gained_like_answers(
            gain.prompt, gain.reference, gain.error
        ):
            return
        yield self.finding(
            f"prompts were learned: their tokens are {gain.prompt:.2f} nats likelier than under the"
            f" base, those of the reference answers {gain.reference:.2f}",
            HELP,
            evidence=[
                f"{gain.tokens:,} tokens of {gain.prompts} prompts (standard error"
                f" {gain.error:.2f}); training on answers alone leaves prompts nearly as they were"
            ],
        )
