"""The beta of a preference run is outside of what it can be.

## What it does
Checks `beta` of DPO and KTO where the loss is known: from the trainer's class, from `loss_type`, or because only
settings of the stack stand in the file.

## Why it is bad
beta scales the reward. At 0 the loss is ln 2 whatever the model says, and every gradient is 0; below 0 the rejected
answer is preferred. Above 1 the policy hardly leaves its reference (published: 0.01 to 0.5). Losses that compare mean
log-probabilities are another matter (SimPO and the like: 2 to 10), as is a file with settings of another program
(`gamma_beta_ratio`): their beta is not looked at.

## Example
```yaml
config:
  model_name_or_path: some/model
  stage: dpo
  do_train: true
  dataset: pairs
  finetuning_type: lora
  pref_beta: 0
  learning_rate: 0.000005
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  stage: dpo
  do_train: true
  dataset: pairs
  finetuning_type: lora
  pref_beta: 0.1
  learning_rate: 0.000005
```

## Fix safety
0.1 is what the paper and most recipes use.

## References
- Rafailov et al., DPO (arXiv:2305.18290), equation 7; 2U1/Qwen-VL-Series-Finetune#159, hiyouga/LLaMA-Factory#5325
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.keys import case
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule

HIGHEST = 1.0
SUMMED = frozenset(("sigmoid", "robust", "hinge", "kto", "None"))
"""Losses of summed log-probabilities whose beta is the reward's scale, as DPO's is"""


class PreferenceBetaOutOfRange(ConfigRule):
    code = "TT616"
    severity = "error"
    methods = ("dpo", "kto")
    reads = ("training.beta", "training.loss_type")

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        beta = training.beta
        if beta is None or training.method not in ("dpo", "kto") or 0 < beta <= HIGHEST:
            return
        said = (
            "every gradient is 0"
            if beta == 0
            else "the rejected answer is preferred"
            if beta < 0
            else "it hardly moves"
        )
        if config.own_keys and "training.loss_type" not in config.places:
            return
        if beta > HIGHEST and not SUMMED.intersection(str(training.loss_type).split("+")):
            return
        yield self.finding(
            f"a beta of {beta:g} for {training.method.upper()}: {said}",
            "set beta to 0.1, or between 0.01 and 0.5",
            severity="error" if beta <= 0 else "warning",
            cases=[case(config, f"{beta:g}", "training.beta")],
        )
