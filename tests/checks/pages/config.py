"""Blocks that are settings: they become a file, which is read by whatever stack it was written for.

The blocks are YAML: `config` holds the settings as a mapping, or `text` the file's own text; `name` is the file's name.
`files` lays other files beside: a text, a mapping or list (written as JSON, or for .jsonl one row a line), or
`{rows: n}` for n short chats (`{rows: n, words: w, long: m, long_words: v}`: m of them with v words).
`weights: {folder: {tensor: shape}}` writes a model.safetensors of zeros there, `ages`
sets how old files are, in seconds. A value of the settings that names one of these files or folders is made its path.
`beside` holds other settings by their file's name, which are given together with these.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from truetune.checks.find_uses_of_weight_folders import find_weight_uses
from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.report.rule_pages.examples_of_settings import launch_command_file_if_keys_ambiguous
from truetune.report.rule_pages.generated_rows import generate_chats_with_some_long
from truetune.settings.config import Config
from truetune.settings.stacks.read_config_of_any_stack import read_config


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Read the settings that a block describes, and look at them with this rule alone."""
    return tuple(rule(config_of(yaml.safe_load(text), folder)).findings())


def config_of(example: dict[str, Any], folder: Path) -> Config:
    """The settings of a block, with what those beside them do with weights."""
    path = lay_out(example, folder)
    others = [folder / name for name in example.get("beside") or ()]
    for other in others:
        other.write_text(yaml.safe_dump(example["beside"][other.name]), encoding="utf-8")
    uses = find_weight_uses([path, *others])
    return replace(
        read_config(path),
        uses=tuple(use for use in uses if use.stage is None),
        stages=tuple(use.stage for use in uses if use.stage is not None),
    )


def lay_out(example: dict[str, Any], folder: Path) -> Path:
    """The settings file of a block, with what it names beside it."""
    for name, content in (example.get("files") or {}).items():
        _write(folder / name, content)
    for name, tensors in (example.get("weights") or {}).items():
        from safetensors.numpy import save_file

        (folder / name).mkdir(parents=True, exist_ok=True)
        zeros = {tensor: np.zeros(shape, np.float16) for tensor, shape in tensors.items()}
        save_file(zeros, folder / name / "model.safetensors")
    for name, age in (example.get("ages") or {}).items():
        os.utime(folder / name, (time.time() - age,) * 2)
    for launcher in launch_command_file_if_keys_ambiguous(example):
        _write(folder / launcher.name, launcher.text)
    there = {str(path.relative_to(folder)): str(path) for path in folder.rglob("*")}
    path = folder / example.get("name", "config.yaml")
    settings = example.get("text") or yaml.safe_dump(
        _with_paths(example["config"], there), sort_keys=False
    )
    path.write_text(settings, encoding="utf-8")
    return path


def _with_paths(value: Any, there: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _with_paths(item, there) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_paths(item, there) for item in value]
    return there.get(value, value) if isinstance(value, str) else value


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl" and isinstance(content, dict):
        content = generate_chats_with_some_long(**content)
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
    else:
        path.write_text(json.dumps(content), encoding="utf-8")
