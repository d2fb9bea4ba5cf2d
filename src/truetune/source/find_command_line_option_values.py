"""Finds the value of a script's command-line options: the default, or what commands beside the
script give.

Scripts hand their settings on from the command line. The default of `add_argument`, or of a field that
HfArgumentParser fills, is what a run takes that gives no other.

The trade-off: a command beside the script that gives the option overrules the default. Its value is known where all
shell scripts there give the same one, and written out. The script's own folder, the one above and their `scripts` are
searched for commands, so one that stands elsewhere, or is typed, is not seen.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.cached_for_one_call import cached_for_one_call
from truetune.errors import DataError
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_commands import last_option, read_command_file
from truetune.source.evaluate_constant_expressions import UNKNOWN, object_turned_into_dict
from truetune.source.parsed_source_file import Module

PARSING_METHODS = ("parse_args", "parse_known_args", "parse_args_into_dataclasses")
"""Methods of argparse and HfArgumentParser whose result holds the options"""
COMMAND_SUFFIXES = (
    ".sh",
    ".bash",
    ".sbatch",
    ".slurm",
    ".md",
    ".txt",
    ".log",
    ".out",
    ".err",
    ".yaml",
    ".yml",
    ".json",
)
"""Files in which a command may stand"""
SHELL_SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm")
"""Files of which a command's own words are read"""
SCRIPTS_FOLDER = "scripts"
"""The usual name of a folder of commands"""
COMMAND_FILE_NAMES = ("Makefile", "justfile", "Dockerfile")
"""Files of commands without a suffix"""
SWITCHED_ON = frozenset(("", "true", "1", "yes"))
"""What stands behind a switch that is on; the empty text is the end of the command"""
MAX_FILES_IN_FOLDER = 100
"""Files beside a script that are read, by name. Chosen, not measured: folders of scripts hold fewer, and one of outputs
with thousands must not be read for one default."""


def find_option_default(module: Module, node: ast.AST) -> ast.expr | None:
    """The default value of the option that an attribute of parsed arguments is; None if there is no
    single one.

    Args:
        module: the script.
        node: `args.lr`.
    """
    name = option_name_of_expression(module, node)
    if name is None:
        return None
    defaults = [
        one
        for one in _defaults_of_options_and_fields(module, name)
        if module.flow.value(one) is not UNKNOWN
    ]
    # Two parsers of one script, or an option and a field, may differ; which is meant is not seen.
    if len(defaults) != 1 or module.flow.value(defaults[0]) is None:
        return None
    return None if _is_option_given_in_commands_or_script_text(module.path, name) else defaults[0]


def option_name_of_expression(module: Module, node: ast.AST) -> str | None:
    """The option of the command line that `args.lr` or `vars(args)["lr"]` reads; None for anything else."""
    if isinstance(node, ast.Attribute):
        name = node.attr
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        name = str(node.slice.value)
    else:
        return None
    origins = [origin.node for origin in module.flow.origins(node.value)]
    if isinstance(node, ast.Subscript):
        # Only a dictionary of all options has them as entries.
        turned = [object_turned_into_dict(module.flow, one) for one in origins]
        origins = [
            origin.node for one in turned if one is not None for origin in module.flow.origins(one)
        ]
    return name if any(map(_is_value_of_parsed_command_line, origins)) else None


class GivenOption(NamedTuple):
    """What a command beside a script gives for an option."""

    value: int | float | bool | str
    file: str
    line: int


def option_value_from_commands_by_attribute(module: Module, node: ast.AST) -> GivenOption | None:
    """The value that the commands beside the script give for the option that an attribute of parsed
    arguments is.

    None where no shell script there starts this one with the option, or two give other values.
    """
    name = option_name_of_expression(module, node)
    return None if name is None else option_value_from_commands_by_name(module.path, name)


def option_value_from_commands_by_name(script: str, name: str) -> GivenOption | None:
    """The value that the commands beside a script give for an option of its command line.

    Args:
        script: The path of the script.
        name: The option as the script names it: `learning_rate`.

    Returns:
        None where no shell script there starts this one with the option, or two give other values.
    """
    path = Path(script)
    given_options = [
        GivenOption(_parse_option_value(value), file, line)
        for file, line, words, _ in shell_commands_starting_script(path.parent, path.name)
        for spelling in dict.fromkeys((name, name.replace("_", "-")))
        for value in [last_option(words, f"--{spelling}")]
        if value is not None
    ]
    values = {one.value for one in given_options}
    # What the shell puts in is not known here.
    if len(values) != 1 or "$" in str(given_options[0].value) or given_options[0].value == "":
        return None
    return given_options[0]


def is_option_omitted_by_every_command(script: str, name: str) -> bool:
    """Do the shell scripts beside a script start it, and does none of their commands give the
    option?
    """
    path = Path(script)
    commands = [one.words for one in shell_commands_starting_script(path.parent, path.name)]
    flags = [f"--{spelling}" for spelling in {name, name.replace("_", "-")}]
    # A variable of the shell may hold more options.
    return bool(commands) and not any(
        "$" in word or any(word == flag or word.startswith(f"{flag}=") for flag in flags)
        for words in commands
        for word in words
    )


def is_option_switched_on_by_every_command(script: str, name: str) -> bool:
    """Do the shell scripts beside a script start it, each by a command that turns the switch on:
    `--flag`, `--flag True`?
    """
    path = Path(script)
    commands = [one.words for one in shell_commands_starting_script(path.parent, path.name)]
    return bool(commands) and all(_command_turns_switch_on(words, name) for words in commands)


def _command_turns_switch_on(words: tuple[str, ...], name: str) -> bool:
    """Does a command give a switch, and not `False` behind it?"""
    flags = [f"--{spelling}" for spelling in {name, name.replace("_", "-")}]
    for place, word in enumerate(words):
        flag, _, value = word.partition("=")
        if flag in flags:
            behind = value or next(iter(words[place + 1 : place + 2]), "")
            return behind.startswith("--") or behind.lower() in SWITCHED_ON
    return False


def _parse_option_value(text: str) -> int | float | bool | str:
    """A value of the command line as a number or truth value if it is one, otherwise as text."""
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


class StartingCommand(NamedTuple):
    """A command of a shell script that starts a script beside it."""

    file: str
    line: int
    """Where it begins, 1-based"""
    words: tuple[str, ...]
    """Those behind the script"""
    text: str
    """The text of the file"""


@cached_for_one_call
def shell_commands_starting_script(folder: Path, script: str) -> tuple[StartingCommand, ...]:
    """The commands of shell scripts that start a script of a folder, in the order of files and lines.

    They are looked for in its own folder, where the script's name counts, and in `scripts`, the folder above and its
    `scripts`, where the path in the command has to lead to it.
    """
    starting_commands: list[StartingCommand] = []
    above = folder.parent
    for place in dict.fromkeys((folder, folder / SCRIPTS_FOLDER, above, above / SCRIPTS_FOLDER)):
        for file in _shell_scripts_in_folder(place):
            try:
                read = read_command_file(Path(file))
            except DataError:
                continue
            for command in read.commands:
                at = _index_of_script_word(command.words, place, folder, script)
                if at is not None:
                    words = command.words[at + 1 :]
                    starting_commands.append(StartingCommand(file, command.line, words, read.text))
    return tuple(starting_commands)


def _shell_scripts_in_folder(folder: Path) -> list[str]:
    """The shell scripts of a folder, by name; none where it can't be read."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)[:MAX_FILES_IN_FOLDER]
        return [
            str(folder / entry.name)
            for entry in entries
            if entry.name.endswith(SHELL_SUFFIXES) and entry.is_file()
        ]
    except OSError:
        return []


def _index_of_script_word(
    words: tuple[str, ...], place: Path, folder: Path, script: str
) -> int | None:
    """The index of the word of a command in `place` that names the script of a folder; None if none
    does.
    """
    wanted = os.path.abspath(folder / script)
    for number, word in enumerate(words):
        if os.path.basename(word) != script:
            continue
        # A command is run in the folder of its file, or in the one above.
        leads_to = {os.path.abspath(base / word) for base in (place, place.parent)}
        if place == folder or wanted in leads_to:
            return number
    return None


def _is_value_of_parsed_command_line(node: ast.AST) -> bool:
    """Is it what a call makes of the command line, or one part of it?"""
    call = node.value if isinstance(node, ast.Subscript) else node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    return call.func.attr in PARSING_METHODS


def _defaults_of_options_and_fields(module: Module, name: str) -> Iterator[ast.expr]:
    """Defaults of the options and fields of that name, in the script or in a file that runs with it."""
    for part in module.self_and_files_run_together:
        yield from _add_argument_defaults_of_option(part, name)
        yield from _defaults_of_class_fields_with_name(part, name)


def _add_argument_defaults_of_option(module: Module, name: str) -> Iterator[ast.expr]:
    """The `default` of each `add_argument` whose flag or `dest` is this name."""
    for call in module.methods("add_argument"):
        default = call.keywords.get("default")
        if default is None:
            continue
        flags = (module.flow.value(flag) for flag in call.args)
        names = {flag.lstrip("-").replace("-", "_") for flag in flags if isinstance(flag, str)}
        names.add(module.flow.value(call.keywords.get("dest")))
        if name in names:
            yield default


def _defaults_of_class_fields_with_name(module: Module, name: str) -> Iterator[ast.expr]:
    """The default of each field of a class with this name, also of `field(default=...)`."""
    for field in module.nodes(ast.AnnAssign):
        if not isinstance(module.scopes.parent.get(field), ast.ClassDef):
            continue
        if not isinstance(field.target, ast.Name) or field.target.id != name:
            continue
        value = field.value
        if isinstance(value, ast.Call):
            value = module.flow.call(value).keywords.get("default")
        if value is not None:
            yield value


def _is_option_given_in_commands_or_script_text(path: str, name: str) -> bool:
    """Does a command beside the script, or in the script's own text, give the option?"""
    flags = tuple(f"--{spelling}" for spelling in {name, name.replace("_", "-")})
    script = Path(path)
    return any(
        flag + after in text
        for text in _texts_beside_script_naming_it(script.parent, script.name)
        for flag in flags
        for after in (" ", "=", "\n", "\t")
    )


# Each setting of each script asks for it; without the cache a folder is read once per setting.
@cached_for_one_call
def _texts_beside_script_naming_it(folder: Path, script: str) -> tuple[str, ...]:
    """The texts beside a script that name it."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)[:MAX_FILES_IN_FOLDER]
    except OSError:
        return ()
    texts = []
    for entry in entries:
        if (
            not (entry.name.endswith(COMMAND_SUFFIXES) or entry.name in COMMAND_FILE_NAMES)
            or not entry.is_file()
        ):
            continue
        try:
            text = read_bytes_within_limit(Path(entry.path), SETTINGS).decode("utf-8", "replace")
        except (OSError, InputLimitError, DataError):
            continue
        if script in text:
            texts.append(text)
    return tuple(texts)
