"""Preference training starts from the base model, not from the SFT model.

## What it does
Follows what each training in the given files writes to what the others start from: LLaMA-Factory, Axolotl and TRL
settings, training commands, and scripts whose settings are calls. It fires if a DPO, KTO or reward model training
starts from the same base as an SFT next to it, and names none of the folders that an SFT there writes, neither as its
model nor as its adapter.

## Why it is bad
The model that is optimised does not contain the SFT, and neither does its reference. The curves look normal. If you
merge the last adapter into the base, you get a model that was never trained on the SFT rows.

## Example
```yaml
beside:
  sft.yaml:
    model_name_or_path: some/model
    stage: sft
    do_train: true
    finetuning_type: lora
    dataset: chats
    template: llama3
    output_dir: saves/sft
config:
  model_name_or_path: some/model
  stage: dpo
  do_train: true
  finetuning_type: lora
  dataset: pairs
  learning_rate: 0.000005
  output_dir: saves/dpo
```

## Use instead
```yaml
beside:
  sft.yaml:
    model_name_or_path: some/model
    stage: sft
    do_train: true
    finetuning_type: lora
    dataset: chats
    template: llama3
    output_dir: saves/sft
config:
  model_name_or_path: some/model
  adapter_name_or_path: saves/sft
  create_new_adapter: true
  stage: dpo
  do_train: true
  finetuning_type: lora
  dataset: pairs
  learning_rate: 0.000005
  output_dir: saves/dpo
```

## Fix safety
There is no automatic fix: both runs may start from the base on purpose, for a comparison.

## References
- Rafailov et al. 2023, Direct Preference Optimization, arXiv 2305.18290 (the reference is the SFT model)
- hiyouga/LLaMA-Factory `examples/train_lora/llama3_lora_dpo.yaml`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.find_training_stages_of_files import LATER_METHODS, stage_of_config
from truetune.checks.find_uses_of_weight_folders import is_same_folder, is_same_or_below
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.data.script_rows.read_rows_given_to_trainer import read_module_with_helpers
from truetune.errors import DataError
from truetune.settings.config import Config, TrainingStage

# LLaMA-Factory's folder of examples has six, each from the base.
MAX_METHODS = 3
"""Methods of the given trainings; more of them are a collection of examples, and no pipeline"""
ADAPTER_LOADS = (
    "peft.*.from_pretrained",
    "peft.load_peft_weights",
    "peft.set_peft_model_state_dict",
)
NO_STAGES = Unmet(
    "it is about a preference run or a reward model that is given together with an SFT of the same base",
    "give both: truetune check SFT DPO",
)


class PreferenceRunIgnoresSftBesideIt(ConfigRule):
    code = "CFG065"
    fault = Fault.PIPELINE_USES_WRONG_MODEL
    symptoms = ("dpo-without-effect", "nothing-is-learned")
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no SFT is given beside a later stage.
        """
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        return None if sft_stages_before(self.subject) else NO_STAGES

    def measurement_if_clean(self) -> str:
        """What was measured: what the stage starts from, and what the SFT runs write."""
        own = stage_of_config(self.subject)
        assert own is not None
        outputs = ", ".join(one.output for one in sft_stages_before(self.subject))
        return f"starts from {', '.join((own.model, *own.adapters))}; SFT writes {outputs}"

    def findings(self) -> Iterator[Finding]:
        config, own = self.subject, stage_of_config(self.subject)
        before = sft_stages_before(config)
        if own is None or not before:
            return
        starts = (own.model, *own.adapters)
        if any(is_same_or_below(name, one.output) for name in starts for one in before):
            return
        # Another adapter, or a folder that something else made: where that comes from is not known.
        if own.adapters or not any(is_same_folder(own.model, one.model) for one in before):
            return
        if _script_loads_an_adapter(config):
            return
        sft = next(one for one in before if is_same_folder(own.model, one.model))
        yield self.finding(
            f"this {own.method.upper()} starts from {own.model}, not from {sft.output}, the output of"
            f" {PurePath(sft.file).name}: the model does not contain the SFT",
            f"{_edit_for_sft_start(config, sft, own)}; ignore this if the run is meant to start from the base",
            cases=[
                setting_case(config, own.model, "model"),
                Case(f"output_dir: {sft.output}", file=sft.file),
            ],
        )


def _script_loads_an_adapter(config: Config) -> bool:
    """Does a script put an adapter on its base, as `PeftModel.from_pretrained(base, "out/sft")` does?

    Whichever it is, the training does not start from the bare base then.
    """
    path = Path(config.path)
    if path.suffix not in (".py", ".ipynb") or not path.is_file():
        return False
    try:
        module = read_module_with_helpers(path)
    except DataError:
        return False
    return any(
        any(True for _ in part.calls(*ADAPTER_LOADS))
        or any(True for _ in part.methods("load_adapter"))
        for part in module.self_and_files_run_together
    )


def sft_stages_before(config: Config) -> list[TrainingStage]:
    """The SFT runs that are given together with a later stage; none where the settings are of no later stage."""
    own = stage_of_config(config)
    if own is None or own.method not in LATER_METHODS:
        return []
    if len({one.method for one in config.stages}) > MAX_METHODS:
        return []
    return [
        one
        for one in config.stages
        if one.method == "sft" and not is_same_folder(one.output, own.output)
    ]


def _edit_for_sft_start(config: Config, sft: TrainingStage, own: TrainingStage) -> str:
    """The edit by which the later stage starts from the SFT, in the words of its stack."""
    if not sft.trains_adapter:
        key = "base_model" if config.stack == "axolotl" else "model_name_or_path"
        return f"set {key}: {sft.output}"
    if config.stack == "llama-factory":
        edit = f"set adapter_name_or_path: {sft.output} and create_new_adapter: true"
        return f"{edit}, and merge both later (adapter_name_or_path: {sft.output},{own.output})"
    if config.stack == "axolotl":
        return (
            f"merge the SFT first (axolotl merge-lora {PurePath(sft.file).name} --lora-model-dir {sft.output}) and"
            f" set base_model: {sft.output}/merged"
        )
    return (
        f"merge the adapter {sft.output} into its base (merge_and_unload, save_pretrained) and start from the merged"
        " folder"
    )
