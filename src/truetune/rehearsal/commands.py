"""Which command a rehearsal starts: the one given, or that of the stack whose settings were given."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from truetune.errors import UsageError
from truetune.spec.config import Config
from truetune.spec.kind import recognise, title_of_kind
from truetune.spec.near import near_path
from truetune.spec.stacks import read_config

TOOLS = {"axolotl": "axolotl", "llama-factory": "llamafactory-cli", "trl": "trl"}
METHODS = ("sft", "dpo", "kto", "reward")
"""TRL's own commands"""


def command_of(target: Sequence[str], work: Path) -> list[str]:
    """The command that begins the training. `work` is a folder for what truetune's own run needs.

    Raises UsageError for settings of another kind, or whose program is not installed, and SpecError for broken ones.
    """
    path, *others = target
    if Path(path).suffix not in (".yaml", ".yml", ".json"):
        return [sys.executable, *target] if path.endswith(".py") else list(target)
    if others:
        raise UsageError(
            f"{' '.join(others)} stands behind {path}: options of truetune go before it"
        )
    if not Path(path).is_file():
        raise UsageError(f"{path}: no such file{near_path(path)}")
    kind = recognise(path)[0]
    if kind == "truetune":
        from truetune.rehearsal.own import prepared

        return prepared(read_config(path).spec, path, work)
    if kind not in TOOLS:
        raise UsageError(
            f"{path}: this is {title_of_kind(kind)}; expected a command after --, or the settings of"
            " truetune, Axolotl, LLaMA-Factory or TRL"
        )
    arguments = _arguments(kind, read_config(path), work)
    return [_tool(TOOLS[kind], arguments, path), *arguments]


def _arguments(kind: str, config: Config, work: Path) -> list[str]:
    """With what the program writes before it trains put into `work`."""
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
    if method not in METHODS:
        raise UsageError(
            f"{config.path}: TRL has no command for {method}: rehearse your script, "
            "truetune rehearse -- python train.py"
        )
    return [method, "--config", config.path]


def _tool(name: str, arguments: list[str], path: str) -> str:
    """Where a program is: beside this Python, else on PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise UsageError(
            f"{path}: {name} is not installed here; name it: "
            f"truetune rehearse -- /its/environment/bin/{name} {' '.join(arguments)}"
        )
    return found
