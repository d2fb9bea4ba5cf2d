"""Reads the vLLM servers that a file of commands starts: their models, adapters and options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.read_settings_in_launch_files import read_document_in_folder_or_parents
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option

MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
IMAGE = "vllm/vllm-openai"


class VllmServerCommand(NamedTuple):
    """A command that starts vLLM."""

    command: ShellCommand
    options: tuple[str, ...]
    """The words behind the name of the program"""


class ServerSetting(NamedTuple):
    """An option that a server reads from its file of settings."""

    option: str
    """As the command would spell it: `--max-num-seqs`"""
    value: str
    """Empty for a switch that is on"""
    file: str
    line: int


def settings_in_server_config_file(
    file: CommandFile, server: VllmServerCommand
) -> list[ServerSetting]:
    """What `--config FILE` sets, which vLLM and SGLang read: options without their dashes, as the keys of YAML.

    Options of the command itself count more, and are left out; so is what holds several values.
    """
    folder = Path(file.path).parent
    document = read_document_in_folder_or_parents(folder, last_option(server.options, "--config"))
    if document is None:
        return []
    settings: list[ServerSetting] = []
    for key, value in document.value.items():
        option = f"--{str(key).replace('_', '-')}"
        is_one = isinstance(value, str | int | float) and value is not False
        if not is_one or last_option(server.options, option) is not None:
            continue
        spot = document.position_of_key(key)
        text = "" if value is True else str(value)
        settings.append(ServerSetting(option, text, document.path, spot.line if spot else 1))
    return settings


def find_vllm_server_commands(file: CommandFile) -> Iterator[VllmServerCommand]:
    """`vllm serve`, `python -m vllm.entrypoints...`, the official image in `docker run` or as a Dockerfile's base."""
    for command in file.commands:
        options = _options_of_vllm_command(file, command)
        if options is not None:
            yield VllmServerCommand(command, options)


def _options_of_vllm_command(file: CommandFile, command: ShellCommand) -> tuple[str, ...] | None:
    """The words behind the program, where a command starts vLLM; None where it does not."""
    programs = [("vllm", "serve"), *(("-m", module) for module in MODULES)]
    for program in programs:
        options = command.words_following(*program)
        if options is not None:
            return options
    # The name of the image may have a registry in front and a tag behind.
    image = next((number for number, word in enumerate(command.words) if IMAGE in word), None)
    if image is not None and "run" in command.words[:image]:
        return command.words[image + 1 :]
    # A Dockerfile on the official image: its entry point is the server, so CMD holds options alone.
    is_last = command is file.commands[-1]
    if IMAGE in file.image and is_last and command.words[0].startswith("-"):
        return command.words
    return None


def model_of_server(server: VllmServerCommand) -> str | None:
    """The model that a server loads; None where the command does not name it."""
    options = server.options
    first = options[0] if options and not options[0].startswith("-") else None
    return last_option(options, "--model") or first


def adapters_by_served_name(server: VllmServerCommand) -> dict[str, str]:
    """Name -> folder of the adapters after `--lora-modules`: `NAME=FOLDER`, or `{"name": ..., "path": ...}`."""
    return adapters_by_option(server.options, "--lora-modules")


def adapters_by_option(options: tuple[str, ...], wanted: str) -> dict[str, str]:
    """Name -> folder of the adapters after an option that takes several."""
    adapters: dict[str, str] = {}
    is_listed = False
    for word in options:
        given = word
        if word.startswith("-"):
            option_name, _, given = word.partition("=")
            is_listed = option_name.replace("_", "-") == wanted
        if is_listed:
            adapters.update(_adapters_by_name_in_word(given))
    return adapters


def _adapters_by_name_in_word(word: str) -> dict[str, str]:
    """Name -> folder of one entry of a list of adapters; empty where it is none."""
    if word.startswith(("{", "[")):
        return _adapters_in_json(word)
    name, equals, folder = word.partition("=")
    return {name: folder} if equals else {}


def _adapters_in_json(word: str) -> dict[str, str]:
    """Name -> folder of the adapters in a JSON entry, or in a list of them; SGLang calls these
    `lora_name` and `lora_path`.
    """
    try:
        given = parse_json(word, SETTINGS)
    except (ValueError, TruetuneError):
        return {}
    paths_by_name: dict[str, str] = {}
    for one in given if isinstance(given, list) else [given]:
        if not isinstance(one, dict):
            continue
        name, folder = (one.get(key) or one.get(f"lora_{key}") for key in ("name", "path"))
        if isinstance(name, str) and isinstance(folder, str):
            paths_by_name[name] = folder
    return paths_by_name
