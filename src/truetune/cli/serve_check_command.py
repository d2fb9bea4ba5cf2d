"""`truetune serve-check`: does a running server serve what was trained? With --print, the command that starts one."""

from __future__ import annotations

from typing import Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.options_opening_finished_model import add_model_options, take_model_options
from truetune.cli.result_output import Delivery, add_report_options, print_status, status_printer
from truetune.cli.shared_options import spec_of_options
from truetune.errors import UsageError


@click.command(
    "serve-check", cls=Command, short_help="What a running server really does with the model."
)
@click.argument("model", metavar="MODEL")
@click.option("--endpoint", metavar="URL", help="The running server.")
@click.option(
    "--static",
    is_flag=True,
    help="Judge the adapter MODEL for --engine by its files: no server, GPU or weights.",
)
@click.option(
    "--engine",
    type=click.Choice(["vllm", "sglang", "llama.cpp", "ollama", "tgi"]),
    help="With --static: the engine that is to serve it.",
)
@click.option(
    "--engine-version",
    metavar="RELEASE",
    help="With --static: its release, 0.32.0; of llama.cpp the commit.",
)
@click.option(
    "--print",
    "printed_engine",
    type=click.Choice(["vllm", "sglang", "llama.cpp", "ollama"]),
    help="Print the start command, or Modelfile, that serves MODEL as it was trained.",
)
@click.option(
    "--data", multiple=True, metavar="PATH", help="Also send the prompts of these rows. Repeatable."
)
@click.option(
    "-n",
    "--prompts",
    "count",
    type=click.IntRange(1, 256),
    default=4,
    show_default=True,
    metavar="N",
    help="Rows of the data that are asked.",
)
@click.option(
    "--no-strength", is_flag=True, help="Do not load the model: its effect is then not measured."
)
@click.option(
    "--longest",
    type=click.IntRange(0),
    default=8192,
    show_default=True,
    metavar="TOKENS",
    help="Most tokens of the prompt that tries the context; 0: none.",
)
@add_model_options
@add_report_options
def serve_check(
    model: str,
    endpoint: str | None,
    static: bool,
    engine: str | None,
    engine_version: str | None,
    printed_engine: str | None,
    data: tuple[str, ...],
    count: int,
    no_strength: bool,
    longest: int,
    **options: Any,
) -> int:
    """Send prompts to the server at --endpoint, and compare what it does with the training record of MODEL.

    Prompts over 1 to 4 turns, with and without a system message and tools, and of rows of --data; stop tokens, sampling
    defaults, repeatability of greedy answers, context length; and whether what training changed is there, at full
    strength: MODEL and its base are loaded on this machine for that. The exit code is 1 if something is wrong.

    With --static: would the named release of an engine load the adapter MODEL as it was trained, leave parts of it
    out, or refuse it? It reads the header of its file, adapter_config.json, and config.json of the base (--base). A
    release or an architecture that is not known is not judged (exit code 3).

    \b
    Examples:
      truetune serve-check outputs/adapter --endpoint http://localhost:8000 --served-model tuned
      truetune serve-check outputs/merged --endpoint http://localhost:8000 --base path/to/base --data held-out.jsonl
      truetune serve-check model.gguf -t outputs/merged --endpoint http://localhost:8080 --no-strength
      truetune serve-check outputs/adapter --print vllm > serve.sh
      truetune serve-check outputs/adapter --static --engine vllm --engine-version 0.32.0 --base path/to/base
    """
    if (endpoint is not None) + (printed_engine is not None) + static != 1:
        raise UsageError(
            "expected one of --endpoint URL, the server to check, --static and --print ENGINE"
        )
    if not static and (engine or engine_version):
        raise UsageError("--engine and --engine-version are for --static")
    if static:
        return _judge_adapter_for_engine(model, engine, engine_version, options)
    if printed_engine is not None:
        return _print_server_command(model, printed_engine, options["base"], options["tokenizer"])
    assert endpoint is not None
    import truetune.report.server_check_terminal  # noqa: F401  # how this report is drawn
    from truetune.serving.check_server import serve_check as check

    deliver = Delivery.of(options)
    opened = take_model_options(options)
    base, tokenizer = options.pop("base"), options.pop("tokenizer")
    spec = spec_of_options(options)
    if not no_strength:
        from truetune.training.prove_merge_or_export import quiet_transformers_bars_and_warnings

        quiet_transformers_bars_and_warnings()
    report = check(
        model,
        endpoint,
        base=base,
        tokenizer=tokenizer,
        options=opened,
        data=data,
        count=count,
        strength=not no_strength,
        longest=longest,
        spec=spec,
        say=status_printer(quiet=deliver.quiet),
    )
    return deliver(report)


def _judge_adapter_for_engine(
    model: str, engine: str | None, release: str | None, options: dict[str, Any]
) -> int:
    """Judge an adapter by its files for a release of an engine; gives the exit code."""
    from truetune.serving.predict_adapter_service import predict_adapter_service

    if engine is None or release is None:
        raise UsageError("--static: expected --engine ENGINE and --engine-version RELEASE as well")
    deliver = Delivery.of(options)
    take_model_options(options)
    base = options.pop("base")
    options.pop("tokenizer")
    spec = spec_of_options(options)
    return deliver(predict_adapter_service(model, engine, release, base=base, spec=spec))


def _print_server_command(model: str, engine: str, base: str | None, tokenizer: str | None) -> int:
    """Print the command that starts a server on stdout, and what the server can't be told on
    stderr; gives the exit code.
    """
    from truetune.generation.backends.model_source import find_model_source
    from truetune.serving.write_server_start_commands import make_start_command

    place = find_model_source(model, base=base, tokenizer=tokenizer)
    command = make_start_command(place, place.prepared(), engine)
    click.echo(command.text)
    for note in command.notes:
        print_status(note)
    return 0
