"""Finds which commands make a model of another one (a merge, a quantization, an export), and where
they leave it.

How it works: of a Python script that stands in the project, the paths of its loads and saves are followed to options of
the command, defaults and constants. Of a script that is not here, its name and its usual options tell. Other programs
are known by their names.

The trade-off: a path that is not seen makes no step; variables that the file sets twice stay as they are written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.source.evidence.adapted_models_and_loaded_names import (
    literal_or_default_text_of_expression,
)
from truetune.errors import TruetuneError
from truetune.parsing.shell_commands import ShellCommand, last_option
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.source.parsed_source_file import Module, read_module

MODEL_OPTIONS = (
    "--base",
    "--base_model",
    "--base_model_path",
    "--base_model_name_or_path",
    "--model",
    "--model_id",
    "--model_name",
    "--model_path",
    "--model_dir",
    "--model_name_or_path",
)
OUTPUT_OPTIONS = (
    "--out",
    "--out_dir",
    "--out_path",
    "--output",
    "--output_dir",
    "--output_path",
    "--save_dir",
    "--save_path",
    "--merged",
    "--merged_dir",
)
MAKER_SCRIPT = re.compile(r"(?:^|[/_.-])(?:merge|fuse|quantize|gptq|awq)\w*\.py$")
MAKES_A_MODEL = re.compile(
    r"merge_and_unload|save_pretrained_merged|save_quantized|\boneshot\(|\bGPTQ\w*\(|\.quantize\("
)
LOADS = (
    "transformers.*Model*.from_pretrained",
    "*Auto*ForCausalLM.from_pretrained",
    "unsloth.*.from_pretrained",
)
SAVES = ("save_pretrained", "save_quantized", "save_pretrained_merged")
MAX_SCRIPT_BYTES = 1 << 20
"""Chosen, not measured: it bounds the time; no script of one's own is that long"""


class MakingStep(NamedTuple):
    """A command that makes a model of another one."""

    command: ShellCommand
    model: str
    """What it begins with"""
    output: str


def model_making_steps(commands: tuple[ShellCommand, ...], folder: Path) -> Iterator[MakingStep]:
    """The commands of a file that make a model of another one.

    Args:
        commands: in the order of the file.
        folder: of the file, from which its paths count.
    """
    for command in commands:
        step = _step_of_python_script(command, folder) or _step_of_known_program(command, folder)
        if step is not None and step.model and step.output and step.model != step.output:
            yield step


def _step_of_known_program(command: ShellCommand, folder: Path) -> MakingStep | None:
    """The step of a known program: LLaMA-Factory's export, or llama.cpp's export of an adapter;
    None for any other.
    """
    words = command.words_following("llamafactory-cli", "export")
    if words is not None:
        model, output = (
            last_option(words, "--model_name_or_path"),
            last_option(words, "--export_dir"),
        )
        settings = next((word for word in words if word.endswith((".yml", ".yaml"))), None)
        named = (
            ("", "") if settings is None else _exported_model_and_output_folder(folder / settings)
        )
        return MakingStep(command, model or named[0], output or named[1])
    words = command.words_following("llama-export-lora")
    if words is not None:
        model, output = last_option(words, "-m", "--model"), last_option(words, "-o", "--output")
        return MakingStep(command, model or "", output or "")
    return None


def _exported_model_and_output_folder(path: Path) -> tuple[str, str]:
    """(model, output folder) of an export in a file of settings; empty texts if the file is not
    there.
    """
    try:
        raw = read_config(path).raw
    except (TruetuneError, OSError):
        return "", ""
    return str(raw.get("model_name_or_path") or ""), str(raw.get("export_dir") or "")


def _step_of_python_script(command: ShellCommand, folder: Path) -> MakingStep | None:
    """A Python script that saves another model than it loads."""
    place = next((n for n, word in enumerate(command.words) if word.endswith(".py")), None)
    if place is None:
        return None
    name, words = command.words[place], command.words[place + 1 :]
    module = _parse_named_script(folder / name)
    if module is None:
        if not MAKER_SCRIPT.search(name):
            return None
        model, output = last_option(words, *MODEL_OPTIONS), last_option(words, *OUTPUT_OPTIONS)
        return MakingStep(command, model or "", output or "")
    return _step_of_module(command, module, words)


def _step_of_module(
    command: ShellCommand, module: Module, words: tuple[str, ...]
) -> MakingStep | None:
    """The step of a script that can be read: the one model that it loads, and the one folder that it saves."""
    if not MAKES_A_MODEL.search(module.text):
        return None
    loaded = {
        resolve_path_argument(module, call.argument(0, "pretrained_model_name_or_path"), words)
        for call in module.calls(*LOADS)
    }
    saved = {
        resolve_path_argument(module, call.argument(0, "save_directory"), words)
        for call in module.methods(*SAVES)
    }
    # Of several models or folders, which one is meant is not seen.
    if len(loaded) != 1 or len(saved) != 1:
        return None
    return MakingStep(command, loaded.pop(), saved.pop())


def _parse_named_script(path: Path) -> Module | None:
    """A script that a command names; None where it is not here."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_SCRIPT_BYTES:
            return None
        return read_module(path)
    except (TruetuneError, OSError, ValueError):
        return None


def resolve_path_argument(module: Module, node: ast.expr | None, words: tuple[str, ...]) -> str:
    """The path that an expression is when a script is started with some words; empty where it is not seen.

    Args:
        module: the script.
        node: `args.out`, `sys.argv[1]`, a parameter of the function that `fire` calls, a constant.
        words: those after the script's name.
    """
    if node is None:
        return ""
    origins = [origin.node for origin in module.flow.origins(node)]
    if len(origins) == 1:
        given = _value_given_on_command_line(module, origins[0], words)
        if given is not None:
            return given
    return literal_or_default_text_of_expression(module, node) or ""


def _value_given_on_command_line(
    module: Module, node: ast.AST, words: tuple[str, ...]
) -> str | None:
    """What the words give for an option, a parameter or a place of sys.argv; None where they give nothing."""
    if isinstance(node, ast.arg):
        return last_option(words, f"--{node.arg}")
    if isinstance(node, ast.Subscript):
        number = module.flow.value(node.slice)
        is_argument = ast.unparse(node.value) == "sys.argv" and isinstance(number, int)
        return words[number - 1] if is_argument and 0 < number <= len(words) else None
    if not isinstance(node, ast.Attribute):
        return None
    flags = _option_spellings(module, node.attr)
    if flags and all(not flag.startswith("-") for flag in flags):
        return _positional_command_line_argument(module, node.attr, words)
    return last_option(words, *(flags or [f"--{node.attr}"]))


def _option_spellings(module: Module, attribute: str) -> list[str]:
    """The spellings of the option that becomes an attribute."""
    for call in module.methods("add_argument"):
        flags = [one.value for one in call.args if isinstance(one, ast.Constant)]
        names = [str(one) for one in flags]
        spelled = {one.lstrip("-").replace("-", "_") for one in names}
        if attribute in spelled or module.flow.value(call.keywords.get("dest")) == attribute:
            return names
    return []


def _positional_command_line_argument(
    module: Module, attribute: str, words: tuple[str, ...]
) -> str | None:
    """The word of an argument without dashes, where no option stands before it."""
    names = [
        str(call.args[0].value)
        for call in module.methods("add_argument")
        if call.args
        and isinstance(call.args[0], ast.Constant)
        and not str(call.args[0].value).startswith("-")
    ]
    place = names.index(attribute) if attribute in names else len(words)
    before = words[: place + 1]
    if place >= len(words) or any(word.startswith("-") for word in before):
        return None
    return words[place]
