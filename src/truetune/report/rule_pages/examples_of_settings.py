"""Examples of rules on settings: the file of any stack, what is beside it, and the machine of the
run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from truetune.report.rule_pages.example_files import (
    Example,
    ExampleFile,
    file_of_measured_facts,
    json_file,
    jsonl_file,
    yaml_file,
)
from truetune.report.rule_pages.generated_rows import generate_chats_with_some_long
from truetune.settings.stacks.read_config_of_any_stack import identify_stack
from truetune.settings.stacks.registry import config_readers

CONFIG = "config.yaml"
LAUNCHER = "run.sh"
MACHINE = "the machine"


def example_of_settings(block: Mapping[str, Any]) -> Example:
    """An example of a rule on settings: the file itself, then the files beside it."""
    name = block.get("name", CONFIG)
    if "text" in block:
        files = [ExampleFile(name, block["text"])]
    else:
        files = [yaml_file(name, block["config"], title_of_settings(block["config"]))]
    files += [
        yaml_file(path, settings, title_of_settings(settings))
        for path, settings in (block.get("beside") or {}).items()
    ]
    files += [_file_beside(path, value) for path, value in (block.get("files") or {}).items()]
    files += launch_command_file_if_keys_ambiguous(block)
    for folder, tensors in (block.get("weights") or {}).items():
        facts = {tensor: " x ".join(map(str, shape)) for tensor, shape in tensors.items()}
        files.append(_file_of_measured_settings(f"{folder}/model.safetensors", facts))
    return Example(tuple(files), tuple(notes_on_ages(block.get("ages") or {})))


def title_of_settings(settings: Mapping[str, Any]) -> str:
    """Whose settings these are by their keys; empty where several programs have such keys."""
    stack = identify_stack(settings)
    reader = config_readers().get(stack) if stack else None
    return reader.title if reader else ""


def launch_command_file_if_keys_ambiguous(block: Mapping[str, Any]) -> Iterator[ExampleFile]:
    """The command that shows whose settings they are, where their keys are those of several
    programs.
    """
    if "dataset_name" in (block.get("config") or {}):
        yield ExampleFile(LAUNCHER, f"trl sft --config {block.get('name', CONFIG)}\n")


def notes_on_ages(ages: Mapping[str, int]) -> Iterator[str]:
    """How old files are, in a sentence each."""
    for name, seconds in ages.items():
        minutes = seconds // 60
        yield f"`{name}` was written {f'{minutes} minutes' if minutes > 1 else 'a minute'} ago."


def _file_beside(name: str, value: Any) -> ExampleFile:
    is_rows = PurePosixPath(name).suffix == ".jsonl"
    if isinstance(value, str):
        return ExampleFile(name, value)
    if is_rows:
        return jsonl_file(
            name, generate_chats_with_some_long(**value) if isinstance(value, dict) else value
        )
    return json_file(name, value)


def _file_of_measured_settings(name: str, facts: Mapping[str, Any]) -> ExampleFile:
    text = "".join(f"{key}: {value}\n" for key, value in facts.items())
    return ExampleFile(name, text, is_measured=True)


def example_of_devices(block: Mapping[str, Any]) -> Example:
    """An example of a rule on devices: truetune's settings, the model's configuration, and the
    machine.
    """
    settings = {
        name: value for name, value in (block.get("config") or {}).items() if name != "stack"
    }
    if "model" in block:
        settings = {"model": "model", **settings}
    files = [yaml_file("truetune.yaml", settings)] if settings else []
    if "model" in block:
        files.append(json_file("model/config.json", block["model"]))
    if "machine" in block:
        files.append(_file_on_machine_gpus_and_variables(block["machine"]))
    rows = (block.get("files") or {}).items()
    return Example(tuple(files), tuple(f"`{name}` has {count} rows." for name, count in rows))


def _file_on_machine_gpus_and_variables(machine: Mapping[str, Any]) -> ExampleFile:
    gpus = machine.get("gpus", 0)
    has = f"{gpus} of {machine.get('memory', 80)} GiB" if gpus else "none"
    return file_of_measured_facts(
        MACHINE, {"GPUs": has, **_environment_variables_entry(machine.get("environment") or {})}
    )


def _environment_variables_entry(environment: Mapping[str, Any]) -> dict[str, str]:
    return (
        {"variables": " ".join(f"{k}={v}" for k, v in environment.items())} if environment else {}
    )
