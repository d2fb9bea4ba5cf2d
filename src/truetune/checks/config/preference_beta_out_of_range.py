"""beta in preference training has a value at which the method does not work.

## What it does
Checks `beta` of DPO, KTO, ORPO (its lambda) and CPO if the loss is known: from the trainer's class, from `loss_type`,
or because the file only has settings of the stack.

## Why it is bad
beta scales the reward. At 0 the loss is ln 2 whatever the model does, and every gradient is 0; below 0 the model learns
to prefer the rejected answer. Above 1 the policy hardly leaves its reference (published: 0.01 to 0.5). In ORPO, beta
weighs the odds ratio against the SFT loss: at 0.001 the rejected answers have no effect (published: 0.1 to 1). Losses
that compare mean log-probabilities use larger values (SimPO and similar: 2 to 10). For those, and for a file with
settings of another program (`gamma_beta_ratio`), the rule does not check the upper end.

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
0.1 is the value of the paper and of most recipes. Training then works as published; earlier runs can't be compared.

## References
- Rafailov et al., DPO (arXiv:2305.18290), equation 7; 2U1/Qwen-VL-Series-Finetune#159, hiyouga/LLaMA-Factory#5325
- Hong et al., ORPO (arXiv:2403.07691)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.settings_judged_by_limits_table import out_of_range_settings
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import BETA
from truetune.checks.rule import ConfigRule


class PreferenceBetaOutOfRange(ConfigRule):
    code = "CFG016"
    fault = Fault.PREFERENCES_NOT_LEARNED
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    methods = ("dpo", "kto", "orpo", "cpo")
    reads = ("training.beta", "training.loss_type")

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        if config.own_keys and "training.loss_type" not in config.places:
            return
        for out_of_range_setting in out_of_range_settings(config, BETA):
            yield self.finding(
                out_of_range_setting.text,
                out_of_range_setting.fix,
                severity=out_of_range_setting.breach.limit.severity,
                evidence=out_of_range_setting.evidence,
                cases=out_of_range_setting.cases,
            )
