"""Reads the SGLang server that a command starts, with the adapters that it loads."""

from __future__ import annotations

from typing import NamedTuple

from truetune.checks.vllm_server_commands import adapters_by_option
from truetune.parsing.shell_commands import ShellCommand, last_option


class SglangServer(NamedTuple):
    """A server as its command describes it."""

    model: str
    served_name: str
    """The name that requests give; the model's, where the command sets none"""
    adapters: dict[str, str]
    """Name -> folder"""


def sglang_server(command: ShellCommand) -> SglangServer | None:
    """The server that a command starts; None where it starts none, or names no model."""
    options = command.words_following("-m", "sglang.launch_server")
    model = last_option(options, "--model-path", "--model") if options else None
    if options is None or not model:
        return None
    name = last_option(options, "--served-model-name") or model
    return SglangServer(model, name, adapters_by_option(options, "--lora-paths"))
