"""Blocks that are a run on a machine.

The blocks are YAML: `config` holds settings by the names of RunSpec, and `stack`; `model` is the model's config.json;
`machine` has `gpus` of `memory` GiB each and `environment`; `files: {name: rows}` are JSON Lines of that many rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.memory.estimate_memory import GIB
from truetune.memory.read_machine import Gpu, Launch, Machine
from truetune.settings.config import Config
from truetune.settings.read_truetune_settings import validate_settings


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at what a block describes with this rule alone."""
    return tuple(rule(launch(yaml.safe_load(text), folder)).findings())


def launch(example: dict[str, Any], folder: Path) -> Launch:
    """The run of a block, with its model and files in `folder`."""
    settings = dict(example.get("config") or {})
    stack = settings.pop("stack", "transformers")
    if "model" in example:
        (folder / "model").mkdir(parents=True)
        (folder / "model" / "config.json").write_text(
            json.dumps(example["model"]), encoding="utf-8"
        )
        settings["model"] = str(folder / "model")
    for name, rows in (example.get("files") or {}).items():
        (folder / name).write_text('{"text": "one"}\n' * rows, encoding="utf-8")
        settings = {
            key: (
                [str(folder / name) if item == name else item for item in value]
                if key.endswith("data")
                else value
            )
            for key, value in settings.items()
        }
    described = example.get("machine") or {}
    gpus = (Gpu("GPU", described.get("memory", 80) * GIB),) * described.get("gpus", 0)
    machine = Machine(
        gpus, 64 * GIB, 8, {k: str(v) for k, v in (described.get("environment") or {}).items()}
    )
    return Launch(Config(stack, "", "config.yaml", validate_settings(settings, "page")), machine)
