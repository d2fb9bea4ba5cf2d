"""Two passes of the reference over the same batch differ: dropout is active.

## What it does
Runs a batch twice through the reference of preference training, in the mode in which the trainer leaves it, with
different random numbers; then through the policy in training mode. It is a warning if the reference differs from
itself, and info if only the policy does: dropout is active there.

## Why it is bad
Rewards are differences of log-probabilities to the reference. With dropout in it they are noise at first: margins are
not 0 before the first step, and learning is slower.

## Example

```python
frozen = transformers.AutoModelForCausalLM.from_config(model.config)
frozen.load_state_dict(model.state_dict())
for layer in frozen.model.layers:
    layer.self_attn.attention_dropout = 0.3
run = trl.DPOTrainer(model, frozen.train(), args=arguments(trl.DPOConfig),
                     train_dataset=datasets.Dataset.from_list(pairs()), processing_class=tokenizer)
```

## Use instead

```python
frozen = transformers.AutoModelForCausalLM.from_config(model.config)
frozen.load_state_dict(model.state_dict())
run = trl.DPOTrainer(model, frozen.eval(), args=arguments(trl.DPOConfig),
                     train_dataset=datasets.Dataset.from_list(pairs()), processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. TRL's `disable_dropout`, on by default, turns off dropout modules; a dropout rate that an
attention layer keeps as a number is not one of them.

## References

- huggingface/trl#744, huggingface/trl#2042, hiyouga/LLaMA-Factory#10779,
  eric-mitchell/direct-preference-optimization#34
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class ReferenceIsNoisy(LawRule):
    code = "LAW009"
    fault = Fault.DROPOUT_IN_WRONG_MODE
    symptoms = ("dpo-without-effect",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    law = "reference-dropout"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that two passes of the reference over the same batch differ."""
        apart: dict[str, float] = evidence["by model"]
        # Dropout of the policy is wanted in training; of the reference it only adds noise to each
        # margin.
        reference = not apart["reference"] <= tolerance
        yield self.finding(
            f"two passes of the {'reference' if reference else 'policy'} over the same batch differ"
            f" by {value:.2g} times the largest logit: dropout is active",
            "set disable_dropout=True and attention_dropout to 0 in the model's config; if you pass a ref_model, call"
            " ref_model.eval()",
            severity="warning" if reference else "info",
            evidence=[
                *(f"{name}: {difference:.2g}" for name, difference in apart.items()),
                *(f"{count} x {rate}" for rate, count in evidence["rates"].items()),
            ],
        )
