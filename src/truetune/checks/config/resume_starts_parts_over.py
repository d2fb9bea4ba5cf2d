"""A resumed run starts its optimizer, its schedule or its rows over.

## What it does
Looks at settings that resume from a checkpoint (`resume_from_checkpoint`) of TRL, transformers, LLaMA-Factory, Axolotl
and ms-swift. It fires if the same settings save only the model (`save_only_model: true`, without DeepSpeed, which stops
there), and if they do not skip the rows that were trained on already (`ignore_data_skip: true`).

## Why it is bad
The run continues at the step of the checkpoint and looks continued. Without the saved optimizer and schedule, Adam
begins with empty moments and the learning rate with its warm-up. Without the skip, the rows of the epoch's beginning
are trained twice and those of its end never.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.00002
  save_strategy: steps
  save_only_model: true
  resume_from_checkpoint: out/checkpoint-800
  output_dir: out
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.00002
  save_strategy: steps
  save_only_model: false
  resume_from_checkpoint: out/checkpoint-800
  output_dir: out
```

## Fix safety
Checkpoints take three times the disk space. A checkpoint that was saved without its optimizer can't be continued: train
from it as from a model, with a learning rate for the rest.

## References
- transformers, `TrainingArguments.save_only_model` ("you won't be able to resume training from checkpoint") and
  `ignore_data_skip`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.stacks.config_draft import holds_unknown_value, is_switched_on

RESUME = "resume_from_checkpoint"


class ResumeStartsPartsOver(ConfigRule):
    code = "CFG263"
    fault = Fault.RESUME_LOSES_STATE
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stacks = ("trl", "transformers", "llama-factory", "axolotl", "ms-swift")

    def unmet(self) -> Unmet | None:
        """Also unmet where the settings do not resume."""
        if (lacking := super().unmet()) is not None:
            return lacking
        value = self.subject.raw.get(RESUME)
        is_set = value not in (None, False, "", "false", "False", "null", "None")
        if not is_set or holds_unknown_value(value):
            return Unmet("it is about settings that resume from a checkpoint")
        return None

    def measurement_if_clean(self) -> str:
        """From where the run resumes."""
        return f"{RESUME}: {self.subject.raw.get(RESUME)}"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        config = self.subject
        resume = setting_case(config, config.raw.get(RESUME), RESUME)
        if is_switched_on(config.raw.get("save_only_model")) and not config.raw.get("deepspeed"):
            yield self.finding(
                "checkpoints are saved without optimizer and schedule, and the run resumes from one: both start over in"
                " the middle of the run",
                "set save_only_model: false",
                cases=[setting_case(config, True, "save_only_model"), resume],
            )
        if is_switched_on(config.raw.get("ignore_data_skip")):
            yield self.finding(
                "the resumed run begins with the first rows of the epoch again, and never reaches its last ones",
                "set ignore_data_skip: false",
                cases=[setting_case(config, True, "ignore_data_skip"), resume],
            )
