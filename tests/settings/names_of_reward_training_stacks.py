"""Names of the settings of verl, ms-swift and OpenRLHF, written down from their own sources.

    python -m tests.settings.names_of_reward_training_stacks STACK FOLDER RELEASE > STACK.json

The file lies in src/truetune/settings/stacks. FOLDER holds the unpacked package. Nothing of it is imported: the names
of verl stand in its generated YAML files, those of ms-swift are fields of its dataclasses, those of OpenRLHF options of
its programs. Defaults are not taken over.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

VERL_FILES = (
    "trainer/config/_generated_ppo_*.yaml",
    "experimental/*/config/*trainer.yaml",
    "trainer/config/sft_trainer*.yaml",
)
SWIFT_FILES = ("arguments/**/*.py", "rlhf_trainers/args_mixin.py", "trainers/arguments.py")
OPENRLHF_FILES = ("cli/train_*.py",)


def dotted_names(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted names of all settings in tables within tables, and of the tables themselves."""
    for key, value in table.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from dotted_names(value, f"{prefix}{key}.")


def names_of_verl(folder: Path) -> set[str]:
    """The names in the YAML files of verl."""
    names: set[str] = set()
    for pattern in VERL_FILES:
        for path in folder.glob(pattern):
            names |= set(dotted_names(yaml.safe_load(path.read_text(encoding="utf-8")) or {}))
    return {name for name in names if "_target_" not in name and not name.startswith("hydra")}


def names_of_swift(folder: Path) -> set[str]:
    """The fields of ms-swift's dataclasses of arguments."""
    names: set[str] = set()
    for pattern in SWIFT_FILES:
        for path in folder.glob(pattern):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    fields = (one for one in node.body if isinstance(one, ast.AnnAssign))
                    names |= {one.target.id for one in fields if isinstance(one.target, ast.Name)}
    return names


def names_of_openrlhf(folder: Path) -> set[str]:
    """The options of OpenRLHF's programs."""
    names: set[str] = set()
    for pattern in OPENRLHF_FILES:
        for path in folder.glob(pattern):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("add_argument"):
                    options = (one.value for one in node.args if isinstance(one, ast.Constant))
                    names |= {str(one).removeprefix("--") for one in options}
    return names


READERS = {"verl": names_of_verl, "ms-swift": names_of_swift, "openrlhf": names_of_openrlhf}


if __name__ == "__main__":
    stack, folder, release = sys.argv[1:4]
    found = sorted(READERS[stack](Path(folder)))
    print(json.dumps({"release": release, "classes": {"names": dict.fromkeys(found)}}, indent=0))
