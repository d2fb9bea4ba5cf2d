"""A reward model is trained by LoRA, and its score head is neither trained nor saved.

## What it does
Reads settings of TRL for a training of a reward model (`trl reward`) with `use_peft`. It fires if `lora_task_type` is
not SEQ_CLS, which is so by default (CAUSAL_LM), and `lora_modules_to_save` names no `score`. It does not fire if the
model already is a classifier, by its config.json or its name.

## Why it is bad
TRL puts a new head with random weights on a language model. peft trains and saves it only for the task type SEQ_CLS,
or if it is named. With CAUSAL_LM it keeps its random weights, and the adapter learns to fit them. They are not saved:
after each load the head has other random weights, and the scores mean nothing. Accuracy looks fine during training.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: trl-lib/ultrafeedback_binarized
  max_length: 2048
  learning_rate: 0.0001
  center_rewards_coefficient: 0.01
  use_peft: true
  lora_r: 32
  lora_target_modules: [all-linear]
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: trl-lib/ultrafeedback_binarized
  max_length: 2048
  learning_rate: 0.0001
  center_rewards_coefficient: 0.01
  use_peft: true
  lora_r: 32
  lora_target_modules: [all-linear]
  lora_task_type: SEQ_CLS
```

## Fix safety
Safe: the adapter's own layers are the same. An adapter that was trained without the head has to be trained again.

## References
- huggingface/trl#1379, huggingface/trl#578, huggingface/peft#577
- trl 1.8, `ModelConfig.lora_task_type`, `RewardTrainer` (`peft_config`)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.config.evidence.facts_from_model_folder import model_config
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.row_formats import is_script_named_as_format

TASK, SAVED = "lora_task_type", "lora_modules_to_save"
DEFAULT_TASK = "CAUSAL_LM"
CLASSIFIER_TASKS = ("SEQ_CLS", "TOKEN_CLS")
# `score` in models with a decoder, `classifier` in those with an encoder.
HEADS = ("score", "classifier")
CLASSIFIER = "ForSequenceClassification"
# A model of such a name may bring its own head, which is then in its files, trained or not.
NAMED_AS_SCORER = re.compile(
    r"(^|[-_./])(rm|prm|orm|reward\w*|classifier|seqcls|scorer)([-_./]|$)", re.I
)
"""Name of a model that may be a classifier already"""


class RewardSettingsLeaveHeadOut(ConfigRule):
    code = "CFG218"
    fault = Fault.TRAINED_HEAD_LOST
    symptoms = ("garbage-output",)
    severity = "error"
    methods = ("reward",)
    stacks = ("trl",)
    reads = (TASK, SAVED)

    def unmet(self) -> Unmet | None:
        """Unmet where no adapter is trained, or where the model may bring its own head."""
        if (lacking := super().unmet()) is not None:
            return lacking
        config = self.subject
        if config.spec.training.lora is None:
            return Unmet("no adapter is trained: the head is saved with the model")
        if is_script_named_as_format(config.path):
            # Its LoraConfig has a task type of its own, which `adapter-leaves-head-out` reads.
            return Unmet("the script makes its adapter itself")
        architectures = model_config(config).get("architectures") or []
        if any(CLASSIFIER in str(name) for name in architectures):
            return Unmet("the model comes with a head")
        if not architectures and NAMED_AS_SCORER.search(config.spec.model or ""):
            return Unmet("the model may come with a head, by its name")
        return None

    def findings(self) -> Iterator[Finding]:
        lora = self.subject.spec.training.lora
        if lora is None or self.unmet() is not None:
            return
        task = str(self.subject.raw.get(TASK) or DEFAULT_TASK).rpartition(".")[2].upper()
        saved = {name.rpartition(".")[2] for name in lora.modules_to_save}
        if task in CLASSIFIER_TASKS or saved & set(HEADS):
            return
        origin = "" if self.subject.raw.get(TASK) else " by default"
        yield self.finding(
            f"the score head of the reward model is neither trained nor saved: {TASK} is {task}{origin}, so the head"
            " keeps random weights, and has others after each load",
            f"set {TASK}: SEQ_CLS",
            cases=[
                setting_case(self.subject, "true", "use_peft"),
                setting_case(self.subject, task if not origin else "not set", TASK),
            ],
        )
