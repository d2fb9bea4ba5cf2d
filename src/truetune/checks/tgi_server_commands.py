"""Reads the TGI server that a command starts, with the adapters that it loads."""

from __future__ import annotations

from typing import NamedTuple

from truetune.parsing.shell_commands import ShellCommand, last_option

PROGRAM = "text-generation-launcher"


class TgiServer(NamedTuple):
    """A server as its command describes it."""

    model: str
    adapters: dict[str, str]
    """Name -> folder"""


def tgi_server_started_by_command(command: ShellCommand) -> TgiServer | None:
    """The server that a command starts; None where it starts none, or names no model."""
    options = command.words_following(PROGRAM)
    model = last_option(options, "--model-id") if options else None
    if options is None or not model:
        return None
    # `NAME=FOLDER,NAME=FOLDER`; an adapter without a name is called by its folder.
    given = (last_option(options, "--lora-adapters") or "").split(",")
    named = (one.partition("=") for one in given if one)
    return TgiServer(model, {name: folder or name for name, _, folder in named})
