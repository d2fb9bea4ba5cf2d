"""A hyperparameter has a value at which training has no effect or breaks down.

## What it does
Compares the hyperparameters in a file or script, whatever the stack calls them, with a table of ranges: the LoRA scale
(`lora_alpha / r`), label smoothing, weight decay, gradient clipping, Adam's betas and epsilon, NEFTune, dropout,
sampling in GRPO, the length at which rows are cut, and the number of optimizer steps. Other rules check learning rates,
warm-up and the beta of preference training.

## Why it is bad
The run ends without an error, and the loss looks normal. With `lora_alpha: 1` and `lora_rank: 256`, the adapter's
output is multiplied by 1/256. With a label smoothing of 0.5, DPO pulls equally towards the rejected and the chosen
answer. With `max_grad_norm: 1e-6`, all gradients are smaller than Adam's epsilon. An error follows from arithmetic; a
warning means that a value is far from every published one.

## Example
```yaml
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: some
  finetuning_type: lora
  lora_rank: 256
  lora_alpha: 1
  learning_rate: 0.00002
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: some
  finetuning_type: lora
  lora_rank: 256
  lora_alpha: 256
  learning_rate: 0.00002
```

## Fix safety
The ranges are wide, and each finding names its source. The best value within them depends on model and data.

## References
- Hu et al., LoRA (arXiv:2106.09685); Dettmers et al., QLoRA (arXiv:2305.14314); Mitchell, "A note on DPO with noisy
  preferences"; Kingma and Ba, Adam (arXiv:1412.6980)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.settings_judged_by_limits_table import (
    list_limited_settings,
    out_of_range_settings,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import OUT_OF_RANGE
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule


class SettingOutOfRange(ConfigRule):
    code = "CFG043"
    fault = Fault.HYPERPARAMETER_OUT_OF_RANGE
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no hyperparameter with a known range is set.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        if not list_limited_settings(self.subject, OUT_OF_RANGE):
            return Unmet("it is about hyperparameters whose range is known, and none is set")
        return None

    def measurement_if_clean(self) -> str:
        """What was measured: the settings with limits and their values."""
        return ", ".join(list_limited_settings(self.subject, OUT_OF_RANGE))

    def findings(self) -> Iterator[Finding]:
        for out_of_range_setting in out_of_range_settings(self.subject, OUT_OF_RANGE):
            yield self.finding(
                out_of_range_setting.text,
                out_of_range_setting.fix,
                severity=out_of_range_setting.breach.limit.severity,
                evidence=out_of_range_setting.evidence,
                cases=out_of_range_setting.cases,
            )
