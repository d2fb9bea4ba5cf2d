"""Reads what a launch is told in several files: the command, accelerate's configuration, the
DeepSpeed file, the settings.

A command that starts a training names its files, and each of them may set the batch, the accumulation, the precision
or the rate. Here the files are found, and each value is read with its place. Values that are "auto", variables of the
shell, and files that are not there say nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from truetune.errors import TruetuneError
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.parse_python_within_limits import parse_python
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    last_option,
    parse_command_file,
)
from truetune.settings import located_document
from truetune.settings.located_document import LocatedDocument

ARGUMENTS = ("TrainingArguments", "Config")
"""Ends of the names of classes that hold the settings of a Trainer: `SFTConfig`, `Seq2SeqTrainingArguments`"""
OTHER_CONFIGS = frozenset(("LoraConfig", "BitsAndBytesConfig", "AutoConfig", "GenerationConfig"))
SETTINGS_OPTIONS = ("--config", "-c", "--recipe", "--config_path")
TRL_METHODS = frozenset(("sft", "dpo", "grpo", "kto", "reward", "rloo", "orpo", "cpo"))
"""What TRL's own command trains: each starts accelerate with the rest of its options"""
ENGINE = "deepspeed.initialize"
DEEPSPEED_OPTIONS = ("--deepspeed", "--deepspeed_config", "--ds_config")
# Chosen: a command in `scripts/slurm/` names files from the project's root, which is two or three folders up.
ABOVE = 3
"""Folders, from the command's own upwards, in which a file that it names is looked for"""


class LocatedValue(NamedTuple):
    """A value, and where it stands."""

    value: Any
    file: str
    line: int
    text: str
    """As a reader finds it: `learning_rate: 1e-05`, `--num_processes 8`"""


class LaunchFiles(NamedTuple):
    """A command that starts a training, and the files that it reads."""

    command: ShellCommand
    accelerate: LocatedDocument | None
    deepspeed: LocatedDocument | None
    settings: LocatedDocument | None
    script: Path | None
    command_file: str

    def script_option_value(self, *names: str) -> LocatedValue | None:
        """The value of an option behind the script; None where the shell puts something in."""
        for name in names:
            value = last_option(self.command.words, f"--{name}")
            # A value of the shell is known only when it runs.
            if value and "$" not in value and not value.startswith("--"):
                text = f"--{name} {value}"
                return LocatedValue(
                    _parse_number_or_keep_value(value), self.command_file, self.command.line, text
                )
        return None

    def enabled_switch_option(self, name: str) -> LocatedValue | None:
        """An option that switches something on: `--bf16`, `--bf16 True`."""
        value = last_option(self.command.words, f"--{name}")
        # A switch alone is on: last_option gives an empty text for it.
        if value is None or value.lower() in ("false", "0", "no"):
            return None
        return LocatedValue(True, self.command_file, self.command.line, f"--{name}")

    def effective_value_of_run(self, *names: str) -> LocatedValue | None:
        """The value that the run itself gets for an option: by the command, else the settings, else
        a literal in the script.
        """
        return (
            self.script_option_value(*names)
            or first_set_value(self.settings, *((name,) for name in names))
            or self.literal_in_script(*names)
        )

    def literal_in_script(self, *names: str) -> LocatedValue | None:
        """A literal that the script gives the settings of its Trainer."""
        tree = parse_script(self.script)
        if tree is None or self.script is None:
            return None
        for call in trainer_arguments_calls(tree):
            for keyword in call.keywords:
                if keyword.arg in names and isinstance(keyword.value, ast.Constant):
                    value, line = keyword.value.value, keyword.value.lineno
                    return LocatedValue(value, str(self.script), line, f"{keyword.arg}={value!r}")
        return None


def find_launches_with_files(file: CommandFile) -> Iterator[LaunchFiles]:
    """The commands of a file that start a script by a launcher, or give it a DeepSpeed file."""
    folder = Path(file.path).parent
    for command in _commands_and_inner_bash_commands(file):
        of_trl = _options_of_trl(command)
        if of_trl is not None:
            yield _launch_of_trl(command, of_trl, file, folder)
            continue
        launch = command.words_following("accelerate", "launch")
        is_launch = launch is not None or "deepspeed" in " ".join(command.words)
        name = next((word for word in command.words if word.endswith(".py")), "")
        # Without a script or a module nothing says which settings the launcher's files are compared with.
        if not is_launch or not (name or _launched_library_module(command)):
            continue
        script = find_in_folder_or_parents(folder, name)
        accelerate = read_document_in_folder_or_parents(
            folder, last_option(launch or (), "--config-file")
        )
        settings = read_document_in_folder_or_parents(
            folder, last_option(_options_of_script(command), *SETTINGS_OPTIONS)
        )
        yield LaunchFiles(
            command,
            accelerate,
            _find_deepspeed_file(command, accelerate, settings, script, folder),
            settings,
            script,
            file.path,
        )


def _options_of_trl(command: ShellCommand) -> tuple[str, ...] | None:
    """The options of TRL's own command, which starts accelerate itself; None where it is another command."""
    behind = command.words_following("trl")
    return behind[1:] if behind and behind[0] in TRL_METHODS else None


def _launch_of_trl(
    command: ShellCommand, options: tuple[str, ...], file: CommandFile, folder: Path
) -> LaunchFiles:
    """The files of a launch by TRL's own command: `trl sft --config sft.yaml --accelerate_config fsdp.yaml`."""
    # One of the names that TRL ships (`fsdp2`, `zero3`) is no file here: nothing is compared then.
    accelerate = read_document_in_folder_or_parents(
        folder, last_option(options, "--accelerate-config")
    )
    settings = read_document_in_folder_or_parents(folder, last_option(options, *SETTINGS_OPTIONS))
    deepspeed = _find_deepspeed_file(command, accelerate, settings, None, folder)
    return LaunchFiles(command, accelerate, deepspeed, settings, None, file.path)


def _options_of_script(command: ShellCommand) -> tuple[str, ...]:
    """The options of the script; those of the launcher stand before it."""
    names = [number for number, word in enumerate(command.words) if word.endswith(".py")]
    if not names and (module := _launched_library_module(command)):
        names = [command.words.index(module)]
    return command.words[names[0] + 1 :] if names else ()


def _launched_library_module(command: ShellCommand) -> str:
    """The module of a library that a launcher starts: `-m trl.scripts.sft`; empty where it starts none."""
    behind = command.words_following("accelerate", "launch") or ()
    module = last_option(behind, "-m", "--module")
    return module or ""


def _commands_and_inner_bash_commands(file: CommandFile) -> Iterator[ShellCommand]:
    """The commands of a file, and those that `bash -c '...'` is given as one word."""
    for command in file.commands:
        yield command
        shell = next((place for place, word in enumerate(command.words) if word == "-c"), None)
        if shell is None or shell + 1 >= len(command.words):
            continue
        # A line that continues inside of the quotes keeps its backslash.
        text = command.words[shell + 1].replace("\\\n", " ")
        for inner in parse_command_file(text, "command.sh").commands:
            yield replace(inner, line=command.line)


def _find_deepspeed_file(
    command: ShellCommand,
    accelerate: LocatedDocument | None,
    settings: LocatedDocument | None,
    script: Path | None,
    folder: Path,
) -> LocatedDocument | None:
    """The DeepSpeed file of a launch: that of the command, else of accelerate's file, of the
    settings or of the script.
    """
    # In the order in which the programs themselves decide: a launcher's option wins over the script's.
    named = last_option(command.words, "--deepspeed-config-file")
    for name in DEEPSPEED_OPTIONS:
        file = last_option(command.words, name)
        named = named or (file if file and file.endswith(".json") else None)
    if not named:
        setting = first_set_value(
            accelerate, ("deepspeed_config", "deepspeed_config_file")
        ) or first_set_value(settings, ("deepspeed",))
        named = setting.value if setting is not None and isinstance(setting.value, str) else None
    tree = parse_script(script) if not named else None
    if tree is not None:
        named = next(_deepspeed_files_in_trainer_arguments(tree), None)
    return read_document_in_folder_or_parents(folder, named)


def _deepspeed_files_in_trainer_arguments(tree: ast.Module) -> Iterator[str]:
    """The DeepSpeed files that a script names in the arguments of a trainer:
    `TrainingArguments(deepspeed="ds.json")`.
    """
    for call in trainer_arguments_calls(tree):
        for keyword in call.keywords:
            is_named = keyword.arg == "deepspeed" and isinstance(keyword.value, ast.Constant)
            if is_named and isinstance(keyword.value, ast.Constant):
                value = keyword.value.value
                if isinstance(value, str):
                    yield value
    yield from _deepspeed_files_of_initialize(tree)


def _deepspeed_files_of_initialize(tree: ast.Module) -> Iterator[str]:
    """The DeepSpeed files that a script gives to the engine:
    `deepspeed.initialize(config="ds.json")`, also by `config = json.load(open("ds.json"))`.
    """
    assigned = {
        ast.unparse(target): node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith(ENGINE):
            continue
        for keyword in call.keywords:
            if keyword.arg in ("config", "config_params"):
                value = assigned.get(ast.unparse(keyword.value), keyword.value)
                yield from _json_names_in(value)


def _json_names_in(value: ast.expr) -> Iterator[str]:
    """The names of JSON files that stand in an expression as plain text."""
    for part in ast.walk(value):
        text = part.value if isinstance(part, ast.Constant) else None
        if isinstance(text, str) and text.endswith(".json"):
            yield text


def trainer_arguments_calls(tree: ast.Module) -> Iterator[ast.Call]:
    """The calls of a script that make the arguments of a Trainer: `TrainingArguments(...)` and its
    kin.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name.endswith(ARGUMENTS) and name not in OTHER_CONFIGS:
                yield node


def parse_script(script: Path | None) -> ast.Module | None:
    """The code of a script; None where it is not there or can't be read."""
    if script is None:
        return None
    try:
        return parse_python(read_bytes_within_limit(script, SETTINGS).decode("utf-8", "replace"))
    except (OSError, InputLimitError, SyntaxError, ValueError):
        return None


def find_in_folder_or_parents(folder: Path, name: str | None) -> Path | None:
    """A file that a command names: from its own folder, or from one above it."""
    if not name or "$" in name:
        return None
    parents = [folder, *list(folder.absolute().parents)[:ABOVE]]
    try:
        return next((parent / name for parent in parents if (parent / name).is_file()), None)
    except OSError:
        return None


def read_document_in_folder_or_parents(folder: Path, name: str | None) -> LocatedDocument | None:
    """The keys of such a file; None where it is not there, can't be read, or holds no keys."""
    path = find_in_folder_or_parents(folder, name)
    try:
        document = located_document.read_located_document(path) if path is not None else None
    except (TruetuneError, OSError, ValueError):
        return None
    return document if document is not None and isinstance(document.value, Mapping) else None


def first_set_value(
    document: LocatedDocument | None, *ways: tuple[str, ...]
) -> LocatedValue | None:
    """The value of the first of these key paths that a document sets, with its place; None for
    "auto", and if none is set.
    """
    for way in ways:
        value: Any = document.value if document is not None else None
        for key in way:
            value = value.get(key) if isinstance(value, Mapping) else None
        # "auto" leaves the value to the Trainer: it contradicts nothing.
        if value is None or value == "auto" or isinstance(value, Mapping):
            continue
        spot = document.position_of_key(*way) if document is not None else None
        # A file of one line (JSON without line ends) has no spots: its first line is shown.
        line = spot.line if spot is not None else 1
        path = document.path if document is not None else ""
        return LocatedValue(
            _parse_number_or_keep_value(value), path, line, f"{'.'.join(way)}: {value}"
        )
    return None


def _parse_number_or_keep_value(value: Any) -> Any:
    """A number that is written as text (`1e-5` is text in YAML); else the value."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
