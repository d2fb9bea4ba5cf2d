"""Finds who reads a file of settings, or starts a script, in the project around it.

A command in a shell script, a README or a Makefile (`axolotl train X`, `trl sft --config X`), and scripts that give
TRL's own classes to `TrlParser` or `HfArgumentParser`. And how a script is started: `accelerate launch train.py`. No
script is run.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.parse_python_within_limits import parse_python
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_commands import variables_set_once_unconditionally
from truetune.settings.config import Stack
from truetune.settings.release_pins import folders_up_to_project_root
from truetune.settings.stacks import read_trl_yaml
from truetune.settings.stacks.known_keys import RENAMED_KEYS, load_known_keys
from truetune.settings.stacks.registry import readers_of_other_programs

LAUNCHERS = re.compile(
    r"\b(?:torchrun|torch\.distributed\.(?:launch|run)|accelerate\s+launch)\b"
    r"|(?<![-.])\bdeepspeed\s+(?:--\w|\S+\.py\b)"
)
"""Commands that start a script as one process or several"""
SEVERAL_PROCESSES = re.compile(
    r"--multi[_-]gpu|--(?:nproc[_-]per[_-]node|num[_-]processes|num_gpus)["
    r" =]+(?!1\b)(?:\d+|gpu|auto)"
    r"|\bNPROC_PER_NODE=[\"']?(?!1\b)\d+"
)
"""What in such a command says that there are several processes"""
COMMAND_FILES = (
    ".sh",
    ".bash",
    ".md",
    ".rst",
    ".slurm",
    ".sbatch",
    ".py",
    ".mk",
    ".ps1",
    ".bat",
) + (
    ".yaml",
    ".yml",
)
"""YAML files too: tasks of SkyPilot, jobs of Kubernetes"""
COMMAND_NAMES = frozenset(("Makefile", "justfile", "Justfile", "Dockerfile", "Taskfile.yml"))
PARSER_CLASSES = frozenset(("TrlParser", "HfArgumentParser"))
# Chosen, not measured: each is read once, and projects with more are mostly collections of examples.
MAX_PROJECT_FILES = 300
"""Of a project; the nearest folders come first"""


class ConfigConsumer(NamedTuple):
    """Who reads a file."""

    stack: Stack
    told_by: str
    """`trl sft in run.sh, line 3`"""
    own_fields: frozenset[str] = frozenset()
    """What the script takes beside the settings of the stack"""
    by_user: bool = False
    """The user says it, and not the project"""


@dataclass(frozen=True, slots=True)
class _ArgumentParser:
    """A parser of a script that is given TRL's classes."""

    line: int
    own_fields: frozenset[str]


def find_program_that_reads_settings(path: Path, keys: frozenset[str]) -> ConfigConsumer | None:
    """The program that reads the file at `path`, whose keys these are; None if the project does not
    say it.
    """
    files = list(scripts_commands_and_readmes_around(path))
    named = re.compile(rf"(?<![\w.-]){re.escape(path.name)}(?![\w-])")
    by_command = next(
        (
            reader
            for file in files
            for reader in _programs_whose_commands_name_settings(file, named)
        ),
        None,
    )
    if by_command is not None:
        return by_command
    scripts = [file for file in files if file.suffix == ".py"]
    scripts.sort(key=lambda script: -len(_words_in_file_name(script) & _words_in_file_name(path)))
    return next(
        (
            reader
            for script in scripts
            for reader in _script_parser_that_takes_all_keys(script, keys)
        ),
        None,
    )


PROCESS_COUNT = re.compile(
    r"--(?:num[-_]processes|nproc[-_]per[-_]node|num[-_]gpus)(?: +|=)([1-9]\d{0,3})\b"
)
"""How accelerate (over all machines), torchrun (on each) and DeepSpeed count the processes of a command"""
CONFIG_OF_ACCELERATE = re.compile(r"accelerate\s+launch\b.*?--config[-_]file(?:\s+|=)([^\s$\"']+)")
COUNT_IN_CONFIG = re.compile(r"^num_processes:\s*(\d{1,4})\b", re.MULTILINE)
"""The processes of accelerate's configuration, of all machines together"""
STARTS_BY_VARIABLES = re.compile(
    r"\b(?:llamafactory-cli\s+train|lmf\s+train|swift\s+(?:sft|pt|rlhf))\b"
)
"""Commands that start as many processes as NPROC_PER_NODE says"""
SHELL_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch")
NODE_COUNT = re.compile(r"--nnodes(?: +|=)([1-9]\d{0,3})\b")


def commands_that_launch(script: Path) -> Iterator[str]:
    """The commands of the project that start this script, or a program with these settings, each
    with its file and line.

    A launcher of processes stands in them, or the command of a stack, which calls one. A script of the same name in
    another folder is not meant: the command's path must lead to it from the command's file, or from one of the folders
    above the script.
    """
    for file, number, line in _command_lines_that_launch(script):
        yield _describe_launch(file, number, line)


def _command_lines_that_launch(script: Path) -> Iterator[tuple[Path, int, str]]:
    """(file, line, text) of the commands of the project that start this script, or a program with
    these settings.
    """
    if not script.is_file():
        return
    wanted = script.resolve()
    for file in scripts_commands_and_readmes_around(script):
        for number, line in _command_lines_cached(str(file), file.stat().st_mtime_ns):
            if any(is_word_path_of_script(word, file, wanted) for word in line.split()):
                yield file, number, line


def _describe_launch(file: Path, number: int, line: str) -> str:
    """A command with where it stands."""
    return f"{' '.join(line.split())} ({file.name}, line {number})"


def commands_that_launch_several_processes(path: Path) -> Iterator[str]:
    """The commands of the project that start this script, or a program that reads these settings, as several
    processes, each with where it stands."""
    for command in commands_that_launch(path):
        if SEVERAL_PROCESSES.search(command) or _named_accelerate_config_starts_several(
            command, path
        ):
            yield command


def _named_accelerate_config_starts_several(command: str, script: Path) -> bool:
    """Does the command name a configuration of accelerate, in a folder of the script's project, that starts several?"""
    named = CONFIG_OF_ACCELERATE.search(command)
    if named is None or PROCESS_COUNT.search(command):
        return False
    for folder in folders_up_to_project_root(script):
        text = read_project_text_cached(str(folder / named[1]))
        if text:
            count = COUNT_IN_CONFIG.search(text)
            return count is not None and int(count[1]) > 1
    return False


def launched_process_count_and_command(path: Path) -> tuple[int, str] | None:
    """How many processes the project's commands start a script, or a program with these settings, as; and a command.

    None where no command says it, or two say different numbers.
    """
    counts: dict[int, str] = {}
    for file, number, line in _command_lines_that_launch(path):
        count = _process_count_of_command(line) or _process_count_by_environment_variables(
            file, line
        )
        if count is None:
            return None
        counts[count] = _describe_launch(file, number, line)
    return next(iter(counts.items())) if len(counts) == 1 else None


def _process_count_of_command(command: str) -> int | None:
    """The processes that a command's own options name; None where they name none."""
    number = PROCESS_COUNT.search(command)
    if number is None:
        return None
    nodes = NODE_COUNT.search(command) if "nproc" in number[0] else None
    return int(number[1]) * (int(nodes[1]) if nodes is not None else 1)


def _process_count_by_environment_variables(file: Path, command: str) -> int | None:
    """The processes that LLaMA-Factory and ms-swift start by NPROC_PER_NODE and NNODES, in front of the command or set
    once in its script; None where they are not set, or are no numbers."""
    if STARTS_BY_VARIABLES.search(command) is None:
        return None
    is_script = file.suffix in SHELL_SUFFIXES
    set_once = (
        variables_set_once_unconditionally(read_project_text_cached(str(file))) if is_script else {}
    )
    counts = []
    for name, default in (("NPROC_PER_NODE", ""), ("NNODES", "1")):
        own = re.search(rf"\b{name}=[\"']?([^\s\"']+)", command)
        value = own[1] if own is not None else set_once.get(name, default)
        if not value.isdecimal() or not int(value):
            return None
        counts.append(int(value))
    return counts[0] * counts[1]


def is_word_path_of_script(word: str, file: Path, script: Path) -> bool:
    """Is this word of a command in `file` a path of the script: `train.py`, `--config=recipes/sft.yaml`?"""
    # Most words of a project's commands and pages hold no such name, and making a path of each takes seconds.
    if script.name not in word:
        return False
    given = word.rpartition("=")[2].strip("\"'`")
    if Path(given).name != script.name:
        return False
    return any((folder / given).resolve() == script for folder in (file.parent, *script.parents))


def _words_in_file_name(path: Path) -> set[str]:
    """The words of a file's name: `grpo.py` reads `grpo_lora.yaml` rather than `sft.py` does."""
    return set(re.split(r"[\W_]+", path.stem.lower()))


def _command_patterns_of_stacks() -> Mapping[Stack, re.Pattern[str]]:
    """The commands that read settings, by their program."""
    return {
        stack: reader.command_in_text
        for stack, reader in readers_of_other_programs().items()
        if reader.command_in_text is not None
    }


def _programs_whose_commands_name_settings(
    file: Path, named: re.Pattern[str]
) -> Iterator[ConfigConsumer]:
    """Commands of a file that name the settings."""
    patterns = _command_patterns_of_stacks()
    for number, line in _command_lines_cached(str(file), file.stat().st_mtime_ns):
        for stack, command in patterns.items():
            called = command.search(line)
            if called is not None and named.search(line, called.end()):
                yield ConfigConsumer(
                    stack, f"{' '.join(called[0].split())} in {file.name}, line {number}"
                )


@lru_cache(maxsize=512)
def _command_lines_cached(path: str, _changed: int) -> tuple[tuple[int, str], ...]:
    """The commands of a file with their line numbers; one that continues over several lines is one.
    Cached, because all settings of a project ask for the same files.
    """
    patterns = (*_command_patterns_of_stacks().values(), LAUNCHERS)
    lines: list[tuple[int, str]] = []
    continued = ""
    for number, line in enumerate(read_project_text_cached(path).splitlines(), 1):
        whole = continued + line
        if whole.endswith("\\"):
            continued = whole[:-1] + " "
            continue
        continued = ""
        # An empty line holds no command, and a file may have a hundred thousand.
        if whole and any(command.search(whole) for command in patterns):
            lines.append((number, whole))
    if not path.endswith(SHELL_SUFFIXES):
        return tuple(lines)
    # A comment of a script says how it was once started, or may be; what it runs counts first.
    run = tuple(one for one in lines if not one[1].lstrip().startswith("#"))
    return run or tuple(lines)


def _script_parser_that_takes_all_keys(
    file: Path, keys: frozenset[str]
) -> Iterator[ConfigConsumer]:
    """A script's parser that takes each of these keys, and not by the words of `TrainingArguments` alone."""
    base = load_known_keys("transformers").classes["TrainingArguments"]
    of_trl = read_trl_yaml.trl_keys() - set(base) - read_trl_yaml.trl_launcher_keys()
    for parser in _parsers_of_trl_classes(str(file), file.stat().st_mtime_ns):
        if (
            keys
            <= read_trl_yaml.trl_keys() | RENAMED_KEYS["transformers"].keys() | parser.own_fields
            and keys & of_trl
        ):
            yield ConfigConsumer(
                "trl", f"the parser in {file.name}, line {parser.line}", parser.own_fields
            )


@lru_cache(maxsize=512)
def _parsers_of_trl_classes(path: str, _changed: int) -> tuple[_ArgumentParser, ...]:
    """The parsers of a script that are given one of TRL's trainer classes, or a class that is made of one."""
    nodes = _nodes_of_parsing_script(path)
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    assigned = _assigned_values(nodes)
    parsers = []
    for call in nodes:
        if not isinstance(call, ast.Call) or not call.args:
            continue
        if _last_name_of_class(call.func) not in PARSER_CLASSES:
            continue
        names = _names_of_written_or_assigned_classes(call.args[0], assigned)
        if any(_is_trl_arguments_class(name, classes) for name in names):
            fields = frozenset(
                field for name in names for field in _dataclass_fields(name, classes)
            )
            parsers.append(_ArgumentParser(call.lineno, fields))
    return tuple(parsers)


def _nodes_of_parsing_script(path: str) -> list[ast.AST]:
    """All nodes of a script that may parse TRL's classes; none of one that does not, or is no Python."""
    text = read_project_text_cached(path)
    # Most scripts of a project hold no such parser, and looking for words is much faster than parsing.
    if "trl" not in text or not any(name in text for name in PARSER_CLASSES):
        return []
    try:
        return list(ast.walk(parse_python(text)))
    except (InputLimitError, SyntaxError, ValueError):
        return []


def _assigned_values(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    """What each name is assigned; of several assignments, the last."""
    values: dict[str, ast.expr] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values[target.id] = node.value
    return values


def _names_of_written_or_assigned_classes(
    node: ast.expr, assigned: Mapping[str, ast.expr]
) -> list[str]:
    """The classes of `(ScriptArguments, SFTConfig)`, written there or assigned to a name."""
    if isinstance(node, ast.Name) and isinstance(assigned.get(node.id), (ast.Tuple, ast.List)):
        node = assigned[node.id]
    items = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    names = (_last_name_of_class(item) for item in items)
    return [name for name in names if name]


def _is_trl_arguments_class(name: str, classes: Mapping[str, ast.ClassDef], depth: int = 0) -> bool:
    """Is it a class of a trainer's arguments of TRL, or made of one in this script?"""
    if name not in classes or depth > len(classes):
        return name in read_trl_yaml.TRAINER_CLASSES
    bases = [_last_name_of_class(base) for base in classes[name].bases]
    return any(
        base in read_trl_yaml.TRAINER_CLASSES or _is_trl_arguments_class(base, classes, depth + 1)
        for base in bases
        if base != name
    ) or (name in bases and name in read_trl_yaml.TRAINER_CLASSES)


def _dataclass_fields(name: str, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """The fields that a dataclass of the script adds."""
    body = classes[name].body if name in classes else []
    for line in body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id


def _last_name_of_class(node: ast.expr) -> str:
    """`SFTConfig` of `SFTConfig` and `read_trl_yaml.SFTConfig`."""
    return (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else ""
    )


def scripts_commands_and_readmes_around(path: Path) -> Iterator[Path]:
    """The scripts, commands and READMEs in the folders from the file up to the root of its project, and in those
    directly below the root."""
    folders = folders_up_to_project_root(path)
    below = sorted(
        Path(entry.path)
        for entry in _folder_entries_or_none(folders[-1])
        if entry.is_dir() and entry.name[0] != "."
    )
    count = 0
    for folder in dict.fromkeys((*folders, *below)):
        for entry in sorted(_folder_entries_or_none(folder), key=lambda entry: entry.name):
            name = entry.name
            if (name.endswith(COMMAND_FILES) or name in COMMAND_NAMES) and entry.is_file():
                count += 1
                if count > MAX_PROJECT_FILES:
                    return
                yield Path(entry.path)


def _folder_entries_or_none(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder, in order; empty if it can't be read."""
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


def read_project_text_cached(path: str) -> str:
    """The text of a file of a project, cached; empty if it can't be read."""
    try:
        return read_bytes_within_limit(Path(path), SETTINGS).decode("utf-8", "replace")
    except (OSError, InputLimitError):
        return ""
