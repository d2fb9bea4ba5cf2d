"""Both bf16 and fp16 are on.

## What it does
Finds `bf16` and `fp16` that are both true.

## Why it is bad
transformers and LLaMA-Factory stop. Axolotl silently uses bf16, even if fp16 was meant for the hardware.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  bf16: true
  fp16: true
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  bf16: true
```

## Fix safety
Use bf16 for a model that was trained in bfloat16, as most are, on a GPU that supports it.

## References
- transformers `TrainingArguments.__post_init__`: "At most one of fp16 and bf16 can be True"
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule


class PrecisionSetTwice(ConfigRule):
    code = "CFG013"
    fault = Fault.SETTINGS_CONTRADICT
    symptoms = ("out-of-memory",)
    severity = "error"
    since = "0.1.0"
    reads = ("bf16", "fp16")

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        both = [config.raw.get(name) for name in ("bf16", "fp16")]
        if all(value is True or str(value).lower() == "true" for value in both):
            axolotl = config.stack == "axolotl"
            yield self.finding(
                "bf16 and fp16 are both on" + ("; bf16 wins" if axolotl else ": the run stops"),
                "remove one of them; keep bf16 if the model was trained in bfloat16 and the GPU supports it",
                severity="warning" if axolotl else "error",
                cases=[setting_case(config, True, "bf16"), setting_case(config, True, "fp16")],
            )
