"""The loss on the prompts fell too, compared with the base model.

## What it does
Compares the loss on the prompts of 8 or more held-out rows under the model and its base (`--against base`), and that on
the supervised tokens. It fires if the prompts have gained at least half as much per token as the answers, at least 0.2,
and their interval excludes 0. Prompts that the settings train on (`learn: all`) count as supervised.

## Why it is bad
The prompts had labels in training. Long questions outweigh short answers in the loss; the training loss falls because
of them, and the answers are learned less than it shows.

## Example

```yaml
rows: 20
other: base
changes: {all: [-0.42, -0.6, -0.25, 0.001]}
prompts: [-0.95, -1.1, -0.8, 0.001]
```

## Use instead

```yaml
rows: 20
other: base
changes: {all: [-0.42, -0.6, -0.25, 0.001]}
prompts: [-0.03, -0.05, 0.01, 0.4]
```

## Fix safety
There is no automatic fix: set the labels of the prompts to -100 and train again from the base model; `truetune run --
COMMAND` shows the labels.

## References

- huggingface/open-r1#517, huggingface/trl#3279
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.detect_prompts_in_loss_by_likelihood import (
    HELP,
    have_prompts_gained_like_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NOT_AGAINST
from truetune.checks.rule import EvaluationRule

# Rows, as of other comparisons with a base: with fewer a bootstrap over rows says nothing of its edges.
MIN_ROWS = 8


class PromptLossFellToo(EvaluationRule):
    code = "EVAL011"
    fault = Fault.PROMPTS_IN_LOSS
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Unmet where the base was not measured too, or too few rows have a prompt."""
        prompts = self.subject.prompts
        if (
            prompts is None
            or self.subject.loss_change_of_token_kind() is None
            or not self.subject.is_base
        ):
            return NOT_AGAINST
        if prompts.rows < MIN_ROWS or prompts.high is None:
            return Unmet(
                f"{prompts.rows:,} rows have a prompt; at least {MIN_ROWS} are needed",
                "name more rows with --data",
            )
        return None

    def measurement_if_clean(self) -> str:
        """By how much the loss of the prompts moved, and that of the supervised tokens."""
        prompts, answers = self.subject.prompts, self.subject.loss_change_of_token_kind()
        assert prompts is not None
        assert answers is not None
        return (
            f"the loss per token of the prompts changed by {prompts.difference:+.2f}, that of the supervised tokens"
            f" by {answers.difference:+.2f}"
        )

    def findings(self) -> Iterator[Finding]:
        prompts, answers = self.subject.prompts, self.subject.loss_change_of_token_kind()
        if self.unmet() is not None or prompts is None or answers is None or prompts.high is None:
            return
        # The interval has to lie below 0: then no further standard error is asked for.
        if prompts.high >= 0:
            return
        if not have_prompts_gained_like_answers(-prompts.difference, -answers.difference, 0.0):
            return
        yield self.finding(
            f"the model was trained on its prompts: on {prompts.rows} rows their loss per token is"
            f" {-prompts.difference:.2f} below the base's ({-prompts.high:.2f} to {-(prompts.low or 0.0):.2f}), that"
            f" of the supervised tokens {-answers.difference:.2f}",
            HELP,
            evidence=["training on answers only hardly changes the loss of the prompts"],
        )
