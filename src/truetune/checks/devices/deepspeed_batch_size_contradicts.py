"""DeepSpeed's batch size is not batch size x accumulation x processes.

## What it does
Multiplies the batch size per device by the accumulation steps and the processes, and compares the product with
`train_batch_size` in the DeepSpeed settings, and each factor with DeepSpeed's own.

## Why it is bad
The Trainer and DeepSpeed would count steps differently. transformers stops if it notices; other launchers train with
the batch size of one and the schedule of the other.

## Example
```yaml
config:
  training:
    per_device_train_batch_size: 4
    gradient_accumulation_steps: 2
    devices: 2
    deepspeed_stage: 2
    other: {deepspeed: {train_batch_size: 32, zero_optimization: {stage: 2}}}
```

## Use instead
```yaml
config:
  training:
    per_device_train_batch_size: 4
    gradient_accumulation_steps: 2
    devices: 2
    deepspeed_stage: 2
    other: {deepspeed: {train_batch_size: auto, zero_optimization: {stage: 2}}}
```

## Fix safety
With `auto`, transformers fills in the product: the effective batch is then that of the Trainer's settings.

## References
- transformers documentation, "DeepSpeed": "auto" values; transformers/integrations/deepspeed.py (`fill_match`)
- CarperAI/trlx#376, hendrycks/apps#9, haotian-liu/LLaVA#1617
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import read_json


class DeepspeedBatchSizeContradicts(DeviceRule):
    code = "DEV004"
    fault = Fault.LAUNCH_SETTINGS_CONTRADICT
    symptoms = ("several-gpus", "odd-metrics")
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        settings, training = self._deepspeed_settings(), self.training
        rows, steps = training.per_device_train_batch_size, training.gradient_accumulation_steps
        world = self.subject.world_size
        # `auto` and what is left out are filled in from the run's settings and cannot contradict them. In one process
        # the number of processes may not be known yet, and so the product is not compared.
        expected = {
            "train_micro_batch_size_per_gpu": rows,
            "gradient_accumulation_steps": steps,
            "train_batch_size": rows * steps * world if rows and steps and world > 1 else None,
        }
        contradictions = [
            (name, f"{name} is {settings[name]:,}, but the run's own settings give {value:,}")
            for name, value in expected.items()
            if value and type(settings.get(name)) is int and settings[name] != value
        ]
        if contradictions:
            yield self.finding(
                f"DeepSpeed's {contradictions[0][1]}",
                f'set {", ".join(name for name, _ in contradictions)} to "auto" in the DeepSpeed settings',
                evidence=[
                    f"{rows} rows x {steps} accumulation steps x {world} processes",
                    *(text for _, text in contradictions[1:]),
                ],
                cases=[setting_case(self.config, "given", "training.deepspeed_stage", "deepspeed")],
            )

    def _deepspeed_settings(self) -> Mapping[str, Any]:
        """The DeepSpeed settings, from a file beside the configuration or inside it; empty where there are none."""
        value = self.training.other.get("deepspeed", self.config.raw.get("deepspeed"))
        if isinstance(value, str):
            path = Path(value) if Path(value).is_file() else Path(self.config.path).parent / value
            try:
                value = read_json(path, SETTINGS)
            except (OSError, ValueError):
                value = None
        return value if isinstance(value, Mapping) else {}
