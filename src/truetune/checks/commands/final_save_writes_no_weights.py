"""The final save of a sharded training writes no usable weights.

## What it does
Reads how a launch shards (accelerate's configuration, the DeepSpeed file) and what its script saves. It fires if the
script, or TRL's own command, calls `save_model` under FSDP with `fsdp_state_dict_type: SHARDED_STATE_DICT` (or
LOCAL_STATE_DICT), or under ZeRO-3 without `stage3_gather_16bit_weights_on_model_save` (accelerate:
`zero3_save_16bit_model`). It does not fire if the script changes the state dict type, or if a command merges the
shards.

## Why it is bad
Under FSDP, transformers' `save_model` silently writes nothing unless the state dict is a full one. Under ZeRO-3 it
writes DeepSpeed's shards and no model.safetensors. Training ends normally, but the folder that was to be served only
contains a tokenizer. If checkpoints were switched off or removed, the weights are lost.

## Example
```bash
accelerate launch --use_fsdp --num_processes 4 --fsdp_state_dict_type SHARDED_STATE_DICT \\
    -m trl.scripts.sft --model_name_or_path some/model --dataset_name some/rows --max_length 2048
```

## Use instead
```bash
accelerate launch --use_fsdp --num_processes 4 --fsdp_state_dict_type FULL_STATE_DICT \\
    -m trl.scripts.sft --model_name_or_path some/model --dataset_name some/rows --max_length 2048
```

## Fix safety
Safe: only the written files change. A full state dict is gathered on one process and takes the memory of the whole
model there. For a finished run, use `accelerate merge-weights` or DeepSpeed's `zero_to_fp32.py`.

## References
- transformers, `Trainer.save_model` (`"FULL_STATE_DICT" in str(...state_dict_type)`)
- huggingface/accelerate, `accelerate merge-weights`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from truetune.checks.config.evidence.saves_without_gathered_weights import (
    GATHERS,
    NAMES_OF_GATHERS,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.read_settings_in_launch_files import (
    LaunchFiles,
    LocatedValue,
    find_launches_with_files,
    first_set_value,
    parse_script,
)
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile

PARTS = ("SHARDED_STATE_DICT", "LOCAL_STATE_DICT", "2", "3")
"""Types of the state under which each process keeps its part, by name and by accelerate's number"""
GATHERED_BY_HAND = (
    "FULL_STATE_DICT",
    "set_state_dict_type",
    "get_state_dict",
    "merge_fsdp_weights",
    "zero_to_fp32",
    "save_16bit_model",
    "fp32_state_dict_from_zero",
)
"""Words of a script that saves whole weights in another way"""
MERGED_BY_COMMAND = ("merge-weights", "merge_fsdp_weights", "zero_to_fp32")
ADAPTER_WORDS = ("LoraConfig", "peft_config", "get_peft_model", "use_peft")
TRL = "trl"


class FinalSaveWritesNoWeights(CommandRule):
    code = "CMD191"
    fault = Fault.SHARDED_WEIGHTS_SAVED_EMPTY
    symptoms = ("several-gpus", "nothing-is-learned")
    severity = "warning"
    stability = "preview"
    what = "launches that say how sharded weights are saved"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[LaunchFiles]:
        """The launches that say how sharded weights are saved."""
        for launch in find_launches_with_files(file):
            if _fsdp_state_type(launch) is not None or _zero_stage(launch) is not None:
                yield launch

    def findings(self) -> Iterator[Finding]:
        if any(word in self.subject.text for word in MERGED_BY_COMMAND):
            return
        for launch in self.examined_places(self.subject):
            place = _line_of_save(launch)
            if place is None:
                continue
            yield from self._findings_on_sharded_fsdp_state(launch, place)
            yield from self._findings_on_ungathered_zero3_weights(launch, place)

    def _findings_on_sharded_fsdp_state(
        self, launch: LaunchFiles, save: LocatedValue
    ) -> Iterator[Finding]:
        """The finding on a state that each process keeps a part of."""
        kind = _fsdp_state_type(launch)
        if kind is None or str(kind.value).upper() not in PARTS:
            return
        yield self.finding(
            (
                f"save_model writes no weights: FSDP's state dict type is {kind.value}, and transformers only saves"
                " a full one"
            ),
            "set fsdp_state_dict_type to FULL_STATE_DICT, or call"
            ' trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT") before saving',
            cases=_cases_of_setting_and_save(kind, save),
        )

    def _findings_on_ungathered_zero3_weights(
        self, launch: LaunchFiles, save: LocatedValue
    ) -> Iterator[Finding]:
        """The finding on weights that ZeRO-3 does not gather for a save."""
        stage = _zero_stage(launch)
        if stage is None or stage.value != 3 or _trains_adapter(launch):
            return
        # Settings of TRL that name the file themselves are judged with it: trained-weights-not-saved.
        if launch.script is None and first_set_value(launch.settings, ("deepspeed",)) is not None:
            return
        gathers = first_set_value(
            launch.deepspeed, *(("zero_optimization", name) for name in NAMES_OF_GATHERS)
        )
        gathers = gathers or first_set_value(
            launch.accelerate, ("deepspeed_config", "zero3_save_16bit_model")
        )
        if gathers is not None and gathers.value not in (False, "false"):
            return
        key = "zero3_save_16bit_model" if launch.deepspeed is None else GATHERS
        yield self.finding(
            "save_model writes DeepSpeed's shards instead of weights that can be loaded: ZeRO-3 does not gather"
            f" them ({key} is off)",
            f"set {key}: true",
            cases=_cases_of_setting_and_save(gathers or stage, save),
        )


def _cases_of_setting_and_save(setting: LocatedValue, save: LocatedValue) -> list[Case]:
    """The setting, and the line that saves."""
    return [Case(place.text, file=place.file, line=place.line) for place in (setting, save)]


def _fsdp_state_type(launch: LaunchFiles) -> LocatedValue | None:
    """The type of the state that FSDP saves, where the launch uses FSDP and says it."""
    mode = first_set_value(launch.accelerate, ("distributed_type",))
    is_fsdp = launch.enabled_switch_option("use_fsdp") is not None or (
        mode is not None and mode.value == "FSDP"
    )
    if not is_fsdp:
        return None
    return launch.script_option_value("fsdp_state_dict_type") or first_set_value(
        launch.accelerate,
        ("fsdp_config", "fsdp_state_dict_type"),
        ("fsdp_config", "state_dict_type"),
    )


def _zero_stage(launch: LaunchFiles) -> LocatedValue | None:
    """The stage of ZeRO, where the launch says it."""
    return first_set_value(launch.deepspeed, ("zero_optimization", "stage")) or first_set_value(
        launch.accelerate, ("deepspeed_config", "zero_stage")
    )


def _line_of_save(launch: LaunchFiles) -> LocatedValue | None:
    """The call of `save_model` that writes the result; the command itself where it is TRL's. None where nothing of
    the kind is seen, or the script gathers the weights itself.
    """
    if launch.script is None:
        return _command_starting_trl_script(launch)
    tree = parse_script(launch.script)
    text = ast.unparse(tree) if tree is not None else ""
    if tree is None or "Trainer" not in text or any(word in text for word in GATHERED_BY_HAND):
        return None
    for node in ast.walk(tree):
        if _is_call_of_save_model(node):
            return LocatedValue(None, str(launch.script), node.lineno, ast.unparse(node))
    return None


def _command_starting_trl_script(launch: LaunchFiles) -> LocatedValue | None:
    """The command where it starts a script of TRL, which saves at its end; None for any other."""
    command = launch.command
    is_trl = any(
        word.rpartition("/")[2] == TRL or word.startswith("trl.scripts.") for word in command.words
    )
    if not is_trl:
        return None
    return LocatedValue(None, launch.command_file, command.line, command.text[:120])


def _is_call_of_save_model(node: ast.AST) -> TypeGuard[ast.Call]:
    """Does a node call the method `save_model`?"""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "save_model"
    )


def _trains_adapter(launch: LaunchFiles) -> bool:
    """Does the run train an adapter, whose few weights are gathered whatever the setting is?"""
    tree = parse_script(launch.script)
    text = ast.unparse(tree) if tree is not None else launch.command.text
    return any(word in text for word in ADAPTER_WORDS) or bool(
        launch.effective_value_of_run("use_peft")
    )
