"""The servers of vLLM that a file of commands starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.parsing.shell_commands import CommandFile, ShellCommand

MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
IMAGE = "vllm/vllm-openai"


class Server(NamedTuple):
    """A command that starts vLLM."""

    command: ShellCommand
    options: tuple[str, ...]
    """The words behind the name of the program"""


def vllm_servers(file: CommandFile) -> Iterator[Server]:
    """`vllm serve`, `python -m vllm.entrypoints...`, the official image in `docker run` or as a Dockerfile's base."""
    for command in file.commands:
        options = command.behind("vllm", "serve")
        for module in MODULES:
            options = command.behind("-m", module) if options is None else options
        image = next((number for number, word in enumerate(command.words) if IMAGE in word), None)
        if options is None and image is not None and "run" in command.words[:image]:
            options = command.words[image + 1 :]
        is_of_image = (
            IMAGE in file.image
            and command is file.commands[-1]
            and command.words[0].startswith("-")
        )
        if options is None and is_of_image:
            options = command.words
        if options is not None:
            yield Server(command, options)


def lora_modules(server: Server) -> dict[str, str]:
    """Name -> folder of the adapters behind `--lora-modules`; entries in JSON are left alone."""
    found: dict[str, str] = {}
    is_listed = False
    for word in server.options:
        if word.startswith("-"):
            option_name, _, first = word.partition("=")
            is_listed = option_name.replace("_", "-") == "--lora-modules"
            word = first
        name, equals, folder = word.partition("=")
        if is_listed and equals and not name.startswith("{"):
            found[name] = folder
    return found
