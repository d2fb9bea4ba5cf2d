"""The learning rate is an order of magnitude away from every published one for this method.

## What it does
Compares the learning rate of an AdamW run with what is published for its method, for all weights and for LoRA:

| | all weights | LoRA | warned below | warned above |
|---|---|---|---|---|
| DPO, KTO, SimPO | 5e-7 to 5e-6 | 5e-6 to 5e-5 | 5e-9, LoRA 5e-8 | 2e-5, LoRA 2e-4 and more |
| SFT | 1e-5 to 5e-5 (tiny models 1e-3) | 1e-4 to 5e-4 | 1e-7, LoRA 5e-6 | 2e-3, LoRA 1e-2 and more |

## Why it is bad
With an SFT rate, DPO drives the log-probability of chosen and rejected answers down together: accuracy is 1.0 at once,
and the text breaks. With a DPO rate, or that of full training, an SFT adapter hardly moves. Both losses look calm.

## Example
```yaml
config:
  model_name_or_path: some/model
  stage: dpo
  do_train: true
  dataset: pairs
  finetuning_type: full
  pref_beta: 0.1
  learning_rate: 0.00002
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  stage: dpo
  do_train: true
  dataset: pairs
  finetuning_type: full
  pref_beta: 0.1
  learning_rate: 0.0000005
```

## Fix safety
The best rate depends on model, batch and data: the table says what worked for others. Watch the chosen log-probability.

## References
- huggingface/alignment-handbook#46, huggingface/alignment-handbook#38, hiyouga/LLaMA-Factory#5325
- alignment-handbook's recipes (zephyr-7b-beta: SFT 2e-5, LoRA 2e-4; DPO 5e-7, LoRA 5e-6), TRL's `DPOConfig` (1e-6),
  "LoRA Without Regret" (LoRA wants about ten times the rate of full training)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.config.keys import case, of_program
from truetune.checks.config.optimizer import adamw
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule


class Range(NamedTuple):
    """Learning rates: what is warned of at either end, and what is published between."""

    low: float
    usual: str
    high: float


RANGES = {
    ("preference", False): Range(5e-9, "5e-7 to 5e-6", 2e-5),
    ("preference", True): Range(5e-8, "5e-6 to 5e-5", 2e-4),
    ("sft", False): Range(1e-7, "1e-5 to 5e-5", 2e-3),
    ("sft", True): Range(5e-6, "1e-4 to 5e-4", 1e-2),
}
"""Method and whether an adapter is trained -> rates"""
KIND = {"dpo": "preference", "kto": "preference", "cpo": "preference", "sft": "sft"}


class DpoTooWeakOrFrozen(ConfigRule):
    code = "TT615"
    severity = "warning"
    methods = ("dpo", "orpo", "cpo", "kto")

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        rate, adapter = training.learning_rate, training.lora is not None
        at = RANGES.get((KIND.get(training.method, ""), adapter))
        if at and not adapter and of_program(config):
            at = at._replace(high=RANGES[KIND[training.method], True].high)
        if not rate or at is None or not adamw(config):
            return
        if at.low <= rate < at.high:
            return
        what = f"{training.method.upper()} of {'an adapter' if adapter else 'all weights'}"
        yield self.finding(
            f"a learning rate of {rate:g} for {what} is far {'below' if rate < at.low else 'above'} the published "
            f"{at.usual}",
            f"begin at {at.usual.replace(' to ', ', up to ')}",
            evidence=[f"method {training.method}, {'LoRA' if adapter else 'all weights'}, AdamW"],
            cases=[
                case(config, f"{rate:g}", "training.learning_rate"),
                case(config, training.method, "training.method"),
            ],
        )
