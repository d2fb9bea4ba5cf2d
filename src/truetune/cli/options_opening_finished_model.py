"""The options that say how a finished model is opened, shared by sample, evaluate, ladder and
serve-check.

They stand in one place, so that a backend that a plug-in adds is known to all four.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from truetune.cli.shared_options import LateChoice

if TYPE_CHECKING:
    from truetune.generation.backends.open_backend import Options

OPTION_NAMES = (
    "backend",
    "device",
    "dtype",
    "served_model",
    "route",
    "concurrency",
    "timeout",
    "trust_remote_code",
)


def _backend_names() -> Iterable[str]:
    """The names of all backends, those of plug-ins included."""
    from truetune.generation.backends.open_backend import backend_names

    return backend_names()


def add_model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of how the model is opened; `take_model_options` takes them."""
    options = [
        click.option("--base", metavar="DIR", help="Base model of an adapter (default: the one in its config)."),
        click.option("-t", "--tokenizer", metavar="DIR", help="Tokenizer folder (default: the model's)."),
        click.option("--backend", type=LateChoice("backend", _backend_names), metavar="NAME",
                     help="Who answers: transformers, server, vllm, llama.cpp, or one of a plug-in; else by the kind "
                     "of MODEL."),
        click.option("--device", metavar="NAME", help="cpu, cuda, cuda:1 or mps (default: a GPU if there is one)."),
        click.option("--dtype", type=click.Choice(["bfloat16", "float16", "float32"]),
                     help="Data type of the weights (default: as stored; float32 on a CPU)."),
        click.option("--served-model", metavar="NAME", help="The server's name for the model, if it has several."),
        click.option("--route", type=click.Choice(["chat", "completions"]), default="chat", show_default=True,
                     help="For a server: send messages, or the prompt's text."),
        click.option("--concurrency", type=click.IntRange(1, 256), default=8, show_default=True, metavar="N",
                     help="Requests to a server at a time."),
        click.option("--timeout", type=click.FloatRange(min=0.1), default=120.0, show_default=True, metavar="SECONDS",
                     help="Limit for one answer of a server."),
        click.option("--trust-remote-code", is_flag=True, help="Run the code in the model's folder."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def take_model_options(options: dict[str, Any]) -> Options:
    """Take the options of how the model is opened out of a command's options."""
    from truetune.generation.backends.open_backend import Options

    return Options(**{name: options.pop(name) for name in OPTION_NAMES})
