"""The beta of a preference run is outside of what it can be.

## What it does
Checks `beta` of DPO, IPO and KTO.

## Why it is bad
beta scales the reward. At 0 the loss is ln 2 whatever the model says, and every gradient is 0; below 0 the rejected
answer is preferred. Above 1 the policy hardly leaves its reference (published: 0.01 to 0.5). SimPO is another matter:
its beta is 2 to 10, and is not looked at.

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


class PreferenceBetaOutOfRange(ConfigRule):
    code = "TT616"
    severity = "error"
    methods = ("dpo", "kto")

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
        if training.loss_type == "sppo_hard" or (beta > HIGHEST and "simpo" in str(training.loss_type)):
            return
        yield self.finding(
            f"a beta of {beta:g} for {training.method.upper()}: {said}",
            "set beta to 0.1, or between 0.01 and 0.5",
            severity="error" if beta <= 0 else "warning",
            cases=[case(config, f"{beta:g}", "training.beta")],
        )
