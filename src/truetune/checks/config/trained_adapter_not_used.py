"""The adapter that is merged or served is not the one that this run trains.

## What it does
Compares the output folder of a training with what the other given files merge, serve or load: export settings, commands
(`vllm serve`, `llamafactory-cli export`, `axolotl merge-lora`), scripts that load an adapter, a Modelfile. It fires if
none of them names the output folder or a folder in it, and one names the adapter or folder that the training started
from. It also fires if they only use one other folder next to the output (in a script: one whose name differs in a
number and that no other file names), or the base without an adapter. With `create_new_adapter`, the adapter that
training started from has to be merged as well.

## Why it is bad
The curves look normal, and the answers are word for word those from before the run. For example, DPO after SFT has no
effect because the SFT adapter is exported again.

## Example
```yaml
beside:
  export.yaml:
    model_name_or_path: some/model
    adapter_name_or_path: saves/sft
    template: llama3
    export_dir: models/dpo
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

## Use instead
```yaml
beside:
  export.yaml:
    model_name_or_path: some/model
    adapter_name_or_path: saves/sft,saves/dpo
    template: llama3
    export_dir: models/dpo
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
There is no automatic fix: an earlier stage may be served on purpose.

## References
- hiyouga/LLaMA-Factory `examples/merge_lora/llama3_lora_sft.yaml`; peft documentation, `PeftModel.from_pretrained`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    setting_case,
)
from truetune.checks.faults import Fault
from truetune.checks.find_training_stages_of_files import LATER_METHODS, stage_of_config
from truetune.checks.find_uses_of_weight_folders import is_same_folder, is_same_or_below
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config, TrainingStage, WeightUse

NO_USES = Unmet(
    "it is about settings that are given together with a file that merges, serves or loads weights",
    "give both: truetune check TRAINING EXPORT",
)
NO_OUTPUT = Unmet("it is about a training whose output folder is known")
RUN_NUMBER = re.compile(r"[-_.]?(?:v|r|run|exp|round|ep|stage)?[-_.]?\d+$", re.I)
"""What counts the runs at the end of the name of their folder"""


class TrainedAdapterNotUsed(ConfigRule):
    code = "CFG046"
    fault = Fault.PIPELINE_USES_WRONG_MODEL
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the output folder is not known, or no other file uses weights.
        """
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if _output_folder(self.subject) is None:
            return NO_OUTPUT
        return None if _weights_used_by_other_files(self.subject) else NO_USES

    def measurement_if_clean(self) -> str:
        """What was measured: the output folder, and the folders that other files use."""
        used = ", ".join(
            dict.fromkeys(
                name for use in _weights_used_by_other_files(self.subject) for name in use.folders
            )
        )
        return f"output_dir: {_output_folder(self.subject)}; used by the other files: {used}"

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        output, uses = _output_folder(config), _weights_used_by_other_files(config)
        if output is None or not uses:
            return
        of_output = [
            use for use in uses if any(is_same_or_below(name, output) for name in use.folders)
        ]
        if of_output:
            yield from self._findings_on_starting_adapter_left_out(
                of_output, _starting_weights(config), output
            )
        # What is wrong with a later stage, if anything, is what it starts from:
        # `preference-run-ignores-sft-beside-it` says so.
        elif not _is_only_later_preference_run_used(config, uses):
            yield from self._findings_where_output_is_unused(uses, output)

    def _findings_where_output_is_unused(
        self, uses: tuple[WeightUse, ...], output: str
    ) -> Iterator[Finding]:
        """Findings where nothing names the output: the base alone, the weights of the start, or
        another run are used.
        """
        config = self.subject
        if all(_exports_base_without_adapter(config, use) for use in uses):
            yield self._finding_on_base_used_without_adapter(uses[0], output)
            return
        start = _starting_weights(config)
        of_start = [use for use in uses if _names_any_of_folders(use, start)]
        if self._are_other_files_of_this_run(of_start, output):
            yield self._finding_on_other_weights(
                (of_start or list(uses))[0], output, bool(of_start)
            )

    def _are_other_files_of_this_run(self, of_start: list[WeightUse], output: str) -> bool:
        """Are the other files about this run, though they name none of what it writes?

        Args:
            of_start: Those that name what the run started from.
            output: The folder that the run writes.
        """
        uses = _weights_used_by_other_files(self.subject)
        if is_config_of_python_program(self.subject) and len(of_start) < len(uses):
            # A script may save under another name than that of its output folder.
            return all(_uses_earlier_numbered_run(use, output) for use in uses)
        return bool(of_start) or _uses_one_sibling_folder(uses, output)

    def _finding_on_other_weights(self, use: WeightUse, output: str, is_start: bool) -> Finding:
        """The finding on a file that uses other weights than those of this run; `is_start`: those
        that it started from.
        """
        config = self.subject
        past = {"merges": "merged", "converts": "converted", "serves": "served", "loads": "loaded"}
        from_it = ", from which the run started" if is_start else ""
        remedy = f"name {output} in {PurePath(use.file).name}"
        before = _used_sft_stage_not_started_from(config, use)
        if before is not None:
            remedy = (
                f"start this run from {before.output} with a new adapter, and name {before.output},{output} in"
                f" {PurePath(use.file).name}; only {output} if the run is meant to start from the base"
            )
        elif _llamafactory_merges_start_adds_adapter(config):
            remedy += " (after the adapter that training started from)"
        elif is_start and use.are_adapters and _script_merges_start_adds_adapter(config):
            first = ", ".join(use.folders)
            remedy = (
                f"merge both, in the order of training: first {first} (merge_and_unload), then load {output} on the"
                " result (PeftModel.from_pretrained, merge_and_unload)"
            )
        return self.finding(
            f"the output of this run, {output}, is not {past[use.verb]}: {PurePath(use.file).name} {use.verb}"
            f" {', '.join(use.folders)}{from_it}",
            remedy,
            cases=[setting_case(config, output, "output_dir"), _case_of_use(use)],
        )

    def _finding_on_base_used_without_adapter(self, use: WeightUse, output: str) -> Finding:
        """The finding on an export or a chat of the base: the adapter that is trained on it is
        named nowhere.
        """
        does = "exports" if use.verb == "merges" else "prompts"
        return self.finding(
            f"{PurePath(use.file).name} {does} {use.folders[0]} without the adapter that this run writes, {output}",
            f"set adapter_name_or_path: {output} in {PurePath(use.file).name}",
            cases=[setting_case(self.subject, output, "output_dir"), _case_of_use(use)],
        )

    def _findings_on_starting_adapter_left_out(
        self, uses: list[WeightUse], start: tuple[str, ...], output: str
    ) -> Iterator[Finding]:
        """Findings on a new adapter on top of another: what merges the new one alone loses the
        other.
        """
        if not _llamafactory_merges_start_adds_adapter(self.subject):
            return
        alone = [use for use in uses if not _names_any_of_folders(use, start)]
        if len(alone) < len(uses) or not start:
            return
        before = ", ".join(start)
        yield self.finding(
            f"{output} was trained on top of the adapter {before}, but {PurePath(alone[0].file).name}"
            f" {alone[0].verb} it without that adapter",
            f"name both adapters in {PurePath(alone[0].file).name}: {before},{output}",
            cases=[setting_case(self.subject, before, "training.adapter"), _case_of_use(alone[0])],
        )


def _is_only_later_preference_run_used(config: Config, uses: tuple[WeightUse, ...]) -> bool:
    """Is this an SFT, and all that is used the output of a preference run beside it?"""
    own = stage_of_config(config)
    if own is None or own.method != "sft":
        return False
    later = [one.output for one in config.stages if one.method in LATER_METHODS]
    return all(
        any(is_same_or_below(name, output) for output in later for name in use.folders)
        for use in uses
    )


def _used_sft_stage_not_started_from(config: Config, use: WeightUse) -> TrainingStage | None:
    """The SFT whose adapter a file uses, where this is a later stage that does not start from it."""
    own = stage_of_config(config)
    if own is None or own.method not in LATER_METHODS or own.adapters or not own.trains_adapter:
        return None
    for one in config.stages:
        is_used = all(is_same_or_below(name, one.output) for name in use.folders)
        starts_alike = is_same_folder(own.model, one.model)
        if one.method == "sft" and one.trains_adapter and is_used and starts_alike:
            return one
    return None


def _exports_base_without_adapter(config: Config, use: WeightUse) -> bool:
    """Does LLaMA-Factory export or ask the model that an adapter is trained on, without any adapter?"""
    if use.verb not in ("merges", "loads") or config.stack != "llama-factory":
        return False
    if config.raw.get("finetuning_type", "lora") != "lora":
        return False
    model = config.raw.get("model_name_or_path")
    return not use.are_adapters and bool(model) and use.folders == (model,)


def _output_folder(config: Config) -> str | None:
    """The folder that a training writes; None where it is not known, or nothing is trained."""
    if config.stack == "llama-factory" and not config.raw.get("do_train"):
        return None
    output = config.raw.get("output_dir")
    return output if isinstance(output, str) and output else None


def _starting_weights(config: Config) -> tuple[str, ...]:
    """The adapters, else the folder of weights, that the training starts from; names of the hub are none."""
    adapters = [name.strip() for name in str(config.spec.training.adapter or "").split(",")]
    adapters += [name for use in config.uses if use.file == config.path for name in use.folders]
    model = (
        config.raw.get("model_name_or_path") or config.raw.get("base_model") or config.spec.model
    )
    is_folder = isinstance(model, str) and (
        model.startswith((".", "/", "~")) or model.count("/") > 1
    )
    return tuple(filter(None, adapters)) or ((str(model),) if is_folder else ())


def _weights_used_by_other_files(config: Config) -> tuple[WeightUse, ...]:
    """The weights that other files use; a script that trains and then loads is judged by itself.

    What one of them makes of the weights (`vllm serve` of a merge) is left out: the one that makes
    it says of which.
    """
    uses = [use for use in config.uses if use.file != config.path]
    made_here = [use for use in uses if _is_written_by_another_use(use, uses)]
    return tuple(use for use in uses if use not in made_here) or tuple(uses)


def _is_written_by_another_use(use: WeightUse, uses: list[WeightUse]) -> bool:
    """Is all that a file uses written by another one, of weights that it uses itself?"""
    written = [
        folder
        for other in uses
        # Commands stand one after the other; of a script it is not known what it writes last.
        if other.file != use.file or other.verb == "converts"
        for folder in other.writes
        # A file that continues with its own folder makes no other weights of it.
        if not _names_any_of_folders(other, (folder,))
    ]
    return all(any(is_same_or_below(name, folder) for folder in written) for name in use.folders)


def _script_merges_start_adds_adapter(config: Config) -> bool:
    """Does the script that trains merge the adapter that it starts from, and train a new one on top?"""
    return any(
        use.file == config.path and use.are_adapters and use.is_merged for use in config.uses
    )


def _llamafactory_merges_start_adds_adapter(config: Config) -> bool:
    """Does LLaMA-Factory merge the adapter of the start and train another one on top?"""
    return bool(config.raw.get("create_new_adapter")) and config.spec.training.adapter is not None


def _names_any_of_folders(use: WeightUse, folders: tuple[str, ...]) -> bool:
    """Does a use name one of these folders?"""
    return any(is_same_folder(name, folder) for name in use.folders for folder in folders)


def _uses_one_sibling_folder(uses: tuple[WeightUse, ...], output: str) -> bool:
    """Is all that is used one folder that lies beside the output: `saves/dpo` beside `saves/dpo-v2`?"""
    names = {name for use in uses if use.are_adapters for name in use.folders}
    above = PurePath(output).parent
    if len(names) != 1 or above == PurePath("."):
        return False
    return is_same_folder(str(PurePath(next(iter(names))).parent), str(above))


def _uses_earlier_numbered_run(use: WeightUse, output: str) -> bool:
    """Is a folder beside the output used that differs from it in a number (`out/shop-v1`), and that no file writes?"""
    if use.is_named_elsewhere:
        return False
    mine = PurePath(_folder_name_without_number(output))
    return all(PurePath(_folder_name_without_number(name)) == mine for name in use.folders)


def _folder_name_without_number(folder: str) -> str:
    """The name of a folder without what counts its runs."""
    return RUN_NUMBER.sub("", str(PurePath(folder)))


def _case_of_use(use: WeightUse) -> Case:
    """The place of a use in its file."""
    return Case(use.text, file=use.file, line=use.line)
