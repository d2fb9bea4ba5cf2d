"""LoRA settings are given, but LoRA is not switched on, so all weights are trained.

## What it does
Finds `lora_r`, `lora_target_modules` and similar keys without `adapter` (Axolotl), without `use_peft` (TRL's command
line), with a `finetuning_type` other than lora (LLaMA-Factory), or with `tuner_type: full` (ms-swift). If `use_peft:
false` is written, that may be intended, and it is info.

## Why it is bad
The adapter's settings are silently ignored. The run trains every weight at a learning rate chosen for LoRA, about ten
times too high, or it runs out of memory. An adapter that training should continue (`lora_model_dir`) is not loaded.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.0002
  lora_r: 32
  lora_target_modules: [all-linear]
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.0002
  use_peft: true
  lora_r: 32
  lora_target_modules: [all-linear]
```

## Fix safety
The run then trains an adapter instead of all weights. If you want full fine-tuning, remove the LoRA settings.

## References
- trl `get_peft_config`: None unless `use_peft`; axolotl `load_adapter`: nothing unless `adapter`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.config.evidence.settings_read_by_another_program import keeps_stack_defaults
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

LORA_SWITCHES = {
    "axolotl": "adapter",
    "trl": "use_peft",
    "llama-factory": "finetuning_type",
    "ms-swift": "tuner_type",
}
REMEDIES = {
    "axolotl": "adapter: lora",
    "trl": "use_peft: true",
    "llama-factory": "finetuning_type: lora",
    "ms-swift": "tuner_type: lora",
}
LORA_KEYS = (
    "lora_r",
    "lora_rank",
    "lora_alpha",
    "lora_dropout",
    "lora_target",
    "lora_target_modules",
    "lora_target_linear",
    "lora_modules_to_save",
    "lora_model_dir",
    "use_dora",
    "use_rslora",
)


class LoraSettingsWithoutLora(ConfigRule):
    code = "CFG038"
    fault = Fault.SETTINGS_NOT_USED
    symptoms = ("nothing-is-learned", "out-of-memory", "loss-does-not-fall")
    severity = "warning"
    since = "0.1.0"
    stacks = ("axolotl", "trl", "llama-factory", "ms-swift")

    def measurement_if_clean(self) -> str:
        """What was measured: whether LoRA is switched on, and how many settings of it are given."""
        given = [
            key for key in LORA_KEYS if self.subject.raw.get(key) not in (None, False, 0, "", [])
        ]
        if self.subject.spec.training.lora is not None:
            return f"LoRA is switched on; settings of it: {len(given):,}"
        return "LoRA is not switched on, and no setting of it is given"

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        switch = LORA_SWITCHES.get(config.stack)
        if switch is None or not _may_lack_lora(config, switch):
            return
        given = [key for key in LORA_KEYS if config.raw.get(key) not in (None, False, 0, "", [])]
        if given:
            now = config.raw.get(switch)
            yield self.finding(
                f"{', '.join(given)} {'has' if len(given) == 1 else 'have'} no effect, because LoRA is not switched"
                " on: all weights are trained",
                f"set {REMEDIES[config.stack]}, or remove the LoRA settings",
                severity="info" if now is False else "warning",
                cases=[
                    setting_case(config, "not set" if now is None else now, switch),
                    *(setting_case(config, config.raw[key], key) for key in given[:2]),
                ],
                count=len(given),
            )


def _may_lack_lora(config: Config, switch: str) -> bool:
    """Is no adapter trained, and is it known that nothing else than the settings switches one on?"""
    if config.spec.training.lora is not None:
        return False
    if config.stack == "axolotl" and config.raw.get("adapter"):
        return False
    return keeps_stack_defaults(config) or switch in config.raw
