"""The settings train no weight.

## What it does
Finds a learning rate of 0, zero epochs, LoRA with `lora_alpha: 0` or `lora_dropout: 1`, and LoRA with an empty list of
modules. For LLaMA-Factory, it finds a file that names training rows but sets neither `do_train` nor any other task, and
`finetuning_type: freeze` with `freeze_trainable_layers: 0`.

## Why it is bad
The run ends without an error and saves the model that it loaded. With `lora_alpha: 0` the adapter is multiplied by 0 in
the forward and backward pass: the loss is that of the base model at every step. An adapter on no module has no weights:
the run stops, or trains nothing.

## Example
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  num_epochs: 3
  learning_rate: 0.0002
  adapter: lora
  lora_r: 16
  lora_alpha: 0
```

## Use instead
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  num_epochs: 3
  learning_rate: 0.0002
  adapter: lora
  lora_r: 16
  lora_alpha: 32
```

## Fix safety
No value is right for every run; `lora_alpha` of one or two times `r` is usual.

## References
- Hu et al., LoRA (arXiv:2106.09685): the update is `alpha / r * B A`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_value_unknown,
    setting_case,
)
from truetune.checks.config.evidence.settings_judged_by_limits_table import out_of_range_settings
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import NOTHING
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config
from truetune.settings.stacks.config_draft import is_switched_on

TASKS_OF_LLAMA_FACTORY = ("do_train", "do_eval", "do_predict")


class SettingsTrainNothing(ConfigRule):
    code = "CFG010"
    fault = Fault.NO_WEIGHT_TRAINED
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    reads = (
        "training.learning_rate",
        "training.num_train_epochs",
        "training.max_steps",
        "training.lora.lora_alpha",
    )

    def findings(self) -> Iterator[Finding]:
        for out_of_range_setting in out_of_range_settings(self.subject, NOTHING):
            yield self.finding(
                out_of_range_setting.text,
                out_of_range_setting.fix,
                cases=out_of_range_setting.cases,
            )
        yield from self._findings_on_missing_task()
        yield from self._findings_on_frozen_layers()
        lora = self.subject.spec.training.lora
        # Saved modules are trained whole, and parameters may be named beside modules.
        if (
            lora is not None
            and lora.target_modules == ()
            and not _may_train_whole_modules_or_parameters(self.subject)
        ):
            yield self.finding(
                "the list of modules that get an adapter is empty: no layer is trained",
                (
                    "list the projections: q_proj, k_proj, v_proj, o_proj and those of the MLP (gate_proj, up_proj,"
                    " down_proj)"
                ),
                cases=[
                    setting_case(
                        self.subject, "no module", "training.lora.target_modules", "training.lora"
                    )
                ],
            )

    def _findings_on_frozen_layers(self) -> Iterator[Finding]:
        """The finding on settings of LLaMA-Factory that unfreeze no layer."""
        config = self.subject
        is_freeze = (
            config.stack == "llama-factory" and config.raw.get("finetuning_type") == "freeze"
        )
        layers = config.raw.get("freeze_trainable_layers")
        if not is_freeze or layers != 0 or config.raw.get("freeze_extra_modules"):
            return
        yield self.finding(
            "finetuning_type is freeze, and freeze_trainable_layers is 0: no layer is trained",
            "set freeze_trainable_layers to the number of last layers to train (2 by default)",
            cases=[setting_case(config, 0, "freeze_trainable_layers")],
        )

    def _findings_on_missing_task(self) -> Iterator[Finding]:
        """The finding on settings of LLaMA-Factory that ask for no training, no evaluation and no prediction."""
        config = self.subject
        asks = any(is_switched_on(config.raw.get(key)) for key in TASKS_OF_LLAMA_FACTORY)
        evaluates = (config.spec.training.eval_strategy or "no") != "no"
        if config.stack != "llama-factory" or asks or evaluates:
            return
        if not config.raw.get("dataset") or not config.raw.get("output_dir"):
            return
        yield self.finding(
            "do_train is not set: LLaMA-Factory loads the model and the rows, and ends without training",
            "set do_train: true",
            cases=[
                setting_case(config, config.raw["dataset"], "dataset"),
                setting_case(config, config.raw.get("do_train", False), "do_train"),
            ],
        )


def _may_train_whole_modules_or_parameters(config: Config) -> bool:
    """May an adapter without modules train something else: modules as a whole, single parameters, or modules that are
    not known?
    """
    lora = config.spec.training.lora
    saved = lora is not None and bool(lora.modules_to_save)
    return (
        saved
        or is_value_unknown(config, "target_modules")
        or "target_parameters" in str(config.raw)
    )
