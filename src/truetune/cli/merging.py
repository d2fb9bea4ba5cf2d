"""The commands for finished weights: merge, export, movement."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from truetune.cli.auditing import say
from truetune.cli.output import SEVERITIES, console
from truetune.errors import UsageError


def proof_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of the proof."""
    options = [
        click.option("--no-proof", is_flag=True, help="Do not ask the models anything."),
        click.option("--prompts", type=click.IntRange(1, 64), default=4, show_default=True, metavar="N",
                     help="Prompts of the proof."),
        click.option("--data", multiple=True, metavar="FILE",
                     help="Take the prompts from these rows; else from built-in questions. Repeatable."),
        click.option("--device", default="cpu", show_default=True, help="Where the models answer: cpu, cuda, mps."),
        click.option("--shard", default="5GB", show_default=True, metavar="SIZE", help="Largest safetensors file."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command(short_help="Merge an adapter into its base, with the loss of precision measured, and proved.")
@click.argument("adapter", metavar="ADAPTER")
@click.option("--base", metavar="DIR", help="The base model; else the one that adapter_config.json names.")
@click.option("-o", "--out", metavar="DIR", help="Folder of the merged model; else ADAPTER-merged.")
@click.option("--dtype", type=click.Choice(["bfloat16", "float16", "float32"]),
              help="How the sum is stored; else as the base.")  # fmt: skip
@proof_options
def merge(adapter: str, no_proof: bool, **options: Any) -> int:
    """Merge ADAPTER into its base, in float32, and save a full model with its tokenizer and template.

    All values are compared with what base and adapter make. The same prompts are then asked of the adapter on its
    base, of the merged model, and of what was read back. The exit code is 1, and nothing is left, where the adapter's
    effect is not there.

    \b
    Examples:
      truetune merge outputs/adapter
      truetune merge outputs/adapter --base path/to/model -o merged --dtype float32
      truetune merge outputs/adapter --data held-out.jsonl --prompts 16
    """
    from truetune.checks.report import Report
    from truetune.report.merged import render_merged
    from truetune.report.terminal import render_report
    from truetune.spec.run import RunSpec
    from truetune.training.merge import merge as run
    from truetune.training.proof import quiet

    quiet()
    made = run(adapter, prove=not no_proof, say=say, **options)
    render_report(Report(spec=RunSpec(), findings=made.findings, seconds=made.seconds), console(), quiet=True)
    render_merged(made, console())
    return int(made.failed)


@click.command(short_help="Export a model as safetensors or GGUF, read back and proved.")
@click.argument("model", metavar="MODEL")
@click.option("-o", "--out", metavar="DIR", required=True, help="A new folder.")
@click.option("--to", type=click.Choice(["safetensors", "gguf"]), default="safetensors", show_default=True,
              help="The format.")  # fmt: skip
@click.option(
    "--dtype", type=click.Choice(["bfloat16", "float16", "float32"]), help="Of safetensors; else the model's."
)
@click.option("--outtype", type=click.Choice(["auto", "f32", "f16", "bf16", "q8_0"]), default="auto", show_default=True,
              help="Of GGUF, as llama.cpp's converter names them.")  # fmt: skip
@click.option("--converter", metavar="PATH", help="llama.cpp's convert_hf_to_gguf.py; else the one on the PATH.")
@click.option("--base", metavar="DIR",
              help="The model before training: the proof is then on what training changed.")  # fmt: skip
@proof_options
def export(model: str, no_proof: bool, **options: Any) -> int:
    """Write MODEL to a new folder in another format, read it back, and compare.

    All tensors, the template, the vocabulary and the special ids are compared, and the logits and greedy answers on a
    few prompts. The exit code is 1, and nothing is left, where something is lost.

    \b
    Examples:
      truetune export merged -o merged-bf16 --dtype bfloat16 --shard 2GB
      truetune export merged -o gguf --to gguf --outtype q8_0 --converter llama.cpp/convert_hf_to_gguf.py
    """
    from truetune.report.merged import render_exported
    from truetune.training.export import export as run
    from truetune.training.proof import quiet

    quiet()
    made = run(model, options.pop("out"), prove=not no_proof, say=say, **options)
    render_exported(made, console())
    return int(made.failed)


@click.command(short_help="What moved between two sets of weights, tensor by tensor.")
@click.argument("after", metavar="AFTER")
@click.option("--base", metavar="DIR", help="The weights before; of an adapter, else the base that it names.")
@click.option("--adapter", metavar="DIR", help="The adapter that was merged: is AFTER what base and adapter make?")
@click.option("--format", "output_format", type=click.Choice(["terminal", "json"]), default="terminal",
              help="What to print.")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="Write the manifest to this file, as JSON, as well.")
@click.option("--fail-on", type=click.Choice(SEVERITIES), default="error", show_default=True,
              help="Lowest severity that makes the exit code 1.")  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="Show notes (info) as fully as errors.")
@click.option("--no-progress", is_flag=True, help="No progress bar.")
def movement(
    after: str, base: str | None, adapter: str | None, output_format: str, output: str | None, fail_on: Any,
    verbose: bool, no_progress: bool,
) -> int:  # fmt: skip
    """Compare the weights in AFTER, a model or an adapter, with those before: all values, no torch needed.

    A table says for each kind of tensor how many values are bit-identical and how far it moved, the least moved first;
    findings name frozen norms, dead adapters, untouched rows of new tokens, and a merge that was rounded away.

    \b
    Examples:
      truetune movement outputs/model --base path/to/base
      truetune movement outputs/adapter
      truetune movement merged --base path/to/base --adapter outputs/adapter --format json
    """
    from truetune.checks.movement import RULES
    from truetune.checks.movement import movement as run
    from truetune.report.movement import comparing, movement_json, render_movement
    from truetune.report.terminal import render_report
    from truetune.spec.run import RunSpec

    with comparing(off=no_progress) as progress:
        report = run(after, base=base, adapter=adapter, spec=RunSpec(select=RULES, fail_on=fail_on), progress=progress)
    if output is not None:
        _write(output, json.dumps(movement_json(report), indent=1))
    if output_format == "json":
        click.echo(json.dumps(movement_json(report), indent=2))
    else:
        render_movement(report.manifest, console())
        render_report(report, console(), verbose=verbose)
    return int(report.failed())


def _write(path: str, text: str) -> None:
    from truetune.data import atomic

    try:
        atomic.write(Path(path).resolve(), text.encode())
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from None
