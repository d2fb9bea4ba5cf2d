"""Finds which command a rehearsal starts: the one given, or that of the stack whose settings were given.

Outputs of the program are turned into the rehearsal's own folder by its options, where it has such; what it writes
elsewhere the confinement catches.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from truetune.errors import UsageError
from truetune.settings.config import Config
from truetune.settings.recognise_input_kind import recognise_kinds, title_of_kind
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.settings.suggest_spelling import did_you_mean_path

TOOL_PROGRAMS = {"axolotl": "axolotl", "llama-factory": "llamafactory-cli", "trl": "trl"}
# Chosen: those whose settings are read here; another method is refused, and its script can be rehearsed instead.
TRL_METHODS = ("sft", "dpo", "kto", "reward")
"""TRL's own commands"""


def find_training_command(target: Sequence[str], work: Path) -> list[str]:
    """The command that begins the training. `work` is a folder for what truetune's own run needs.

    Raises UsageError for settings of another kind, or whose program is not installed, and SpecError for broken ones.
    """
    path, *others = target
    if Path(path).suffix not in (".yaml", ".yml", ".json"):
        return [sys.executable, *target] if path.endswith(".py") else list(target)
    # Words behind settings would be dropped: rather refused than lost.
    if others:
        raise UsageError(f"{' '.join(others)} follows {path}: options of truetune go before it")
    if not Path(path).is_file():
        raise UsageError(f"{path}: no such file{did_you_mean_path(path)}")
    kind = recognise_kinds(path)[0]
    if kind == "truetune":
        from truetune.rehearsal.rehearsed_run_without_script import encode_and_make_command

        return encode_and_make_command(read_config(path).spec, path, work)
    if kind not in TOOL_PROGRAMS:
        raise UsageError(
            f"{path}: this is {title_of_kind(kind)}; expected a command after --, or the settings of"
            " truetune, Axolotl, LLaMA-Factory or TRL"
        )
    arguments = _arguments_with_outputs_in_work(kind, read_config(path), work)
    return [_find_program(TOOL_PROGRAMS[kind], arguments, path), *arguments]


def _arguments_with_outputs_in_work(kind: str, config: Config, work: Path) -> list[str]:
    """The arguments of a program, with what it writes before it trains put into `work`."""
    if kind == "axolotl":
        return [
            "train",
            config.path,
            "--output-dir",
            str(work / "out"),
            "--dataset-prepared-path",
            str(work / "rows"),
        ]
    if kind == "llama-factory":
        return ["train", config.path, f"output_dir={work / 'out'}"]
    method = config.spec.training.method
    if method not in TRL_METHODS:
        raise UsageError(
            f"{config.path}: TRL has no command for {method}: rehearse your script, "
            "truetune rehearse -- python train.py"
        )
    return [method, "--config", config.path]


def _find_program(name: str, arguments: list[str], path: str) -> str:
    """The path of a program: beside this Python, else on PATH. Raises UsageError where it is
    neither.
    """
    # Beside this Python first: an environment that is not activated is not on PATH.
    beside = Path(sys.executable).parent / name
    program = str(beside) if beside.is_file() else shutil.which(name)
    if program is None:
        raise UsageError(
            f"{path}: {name} is not installed here; name it: "
            f"truetune rehearse -- /its/environment/bin/{name} {' '.join(arguments)}"
        )
    return program
