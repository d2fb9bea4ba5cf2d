"""The commands for finished weights: merge, export, movement. Nothing stays on the disk that failed its proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import (
    Delivery,
    add_format_options,
    add_report_options,
    html_option,
    make_console,
    print_json,
    print_renamed_rules,
    print_status,
    progress_option,
    status_printer,
    write_html_page,
)
from truetune.cli.shared_options import drop_options_not_given
from truetune.errors import UsageError


def add_proof_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the proof to a command."""
    options: list[Callable[..., Any]] = [
        click.option("--no-proof", is_flag=True, help="Skip the comparison of logits and answers."),
        click.option("-n", "--prompts", type=click.IntRange(1, 64), default=4, show_default=True, metavar="N",
                     help="Prompts of the proof."),
        click.option("--data", multiple=True, metavar="PATH",
                     help="Take the prompts from these rows (default: built-in questions). Repeatable."),
        click.option("--device", metavar="NAME", default="cpu", show_default=True,
                     help="Where the models answer: cpu, cuda, mps."),
        click.option("--shard", default="5GB", show_default=True, metavar="SIZE", help="Largest safetensors file."),
        add_format_options(),
        html_option,
        click.option("-q", "--quiet", is_flag=True, help="Print only the outcome."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command(cls=Command, short_help="Merge an adapter into its base, measured and proved.")
@click.argument("adapter", metavar="ADAPTER")
@click.option(
    "--base", metavar="DIR", help="The base model (default: the one in adapter_config.json)."
)
@click.option(
    "-o",
    "--output",
    "out",
    metavar="DIR",
    help="Folder for the merged model (default: ADAPTER-merged).",
)
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float16", "float32"]),
    help="Data type of the merged weights (default: the base's).",
)
@add_proof_options
def merge(
    adapter: str, no_proof: bool, html: str | None, output_format: str, quiet: bool, **options: Any
) -> int:
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
    from truetune.report.merge_and_export_terminal import (
        merge_findings_report,
        merge_page_values,
        render_merged,
    )
    from truetune.training.merge import merge as run
    from truetune.training.prove_merge_or_export import quiet_transformers_bars_and_warnings as hush

    hush()
    made = run(adapter, prove=not no_proof, say=status_printer(quiet=quiet), **options)
    value, report = merge_page_values(made), merge_findings_report(made)
    write_html_page(html, "merge", value)
    if output_format == "json":
        print_json("merge", value)
    else:
        Delivery("terminal", output=None, html=None, verbose=False, quiet=True)(report)
        _print_place_if_quiet_else_all(
            quiet, made.failed, made.folder, lambda: render_merged(made, make_console())
        )
    return 1 if made.failed else report.exit_code()


@click.command(
    cls=Command, short_help="Export a model as safetensors or GGUF, read back and proved."
)
@click.argument("model", metavar="MODEL")
@click.option("-o", "--output", "out", metavar="DIR", required=True, help="A new folder.")
@click.option(
    "--to",
    type=click.Choice(["safetensors", "gguf"]),
    default="safetensors",
    show_default=True,
    help="The format.",
)
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float16", "float32"]),
    help="Data type of safetensors (default: the model's).",
)
@click.option(
    "--outtype",
    type=click.Choice(["auto", "f32", "f16", "bf16", "q8_0"]),
    default="auto",
    show_default=True,
    help="GGUF type, as llama.cpp's converter calls it.",
)
@click.option(
    "--converter",
    metavar="PATH",
    help="llama.cpp's convert_hf_to_gguf.py (default: the one on the PATH).",
)
@click.option(
    "--base",
    metavar="DIR",
    help="The model before training: the proof is then on what training changed.",
)
@click.option(
    "--for",
    "engine",
    type=click.Choice(["vllm", "sglang", "llama.cpp", "ollama", "tgi"]),
    help="MODEL is an adapter: copy it with the names of tensors that this engine serves.",
)
@click.option("--engine-version", metavar="RELEASE", help="With --for: the engine's release.")
@add_proof_options
def export(
    model: str,
    engine: str | None,
    engine_version: str | None,
    no_proof: bool,
    html: str | None,
    output_format: str,
    quiet: bool,
    **options: Any,
) -> int:
    """Write MODEL to a new folder in another format, read it back, and compare.

    All tensors, the template, the vocabulary and the special ids are compared, and the logits and greedy answers on a
    few prompts. The exit code is 1, and nothing is left, where something is lost.

    \b
    Examples:
      truetune export merged -o merged-bf16 --dtype bfloat16 --shard 2GB
      truetune export merged -o gguf --to gguf --outtype q8_0 --converter llama.cpp/convert_hf_to_gguf.py
      truetune export outputs/adapter -o renamed --for vllm --engine-version 0.32.0 --base path/to/base
    """
    if engine is not None or engine_version is not None:
        return _export_renamed_adapter(model, engine, engine_version, options)
    from truetune.report.merge_and_export_terminal import export_page_values, render_exported
    from truetune.training.export import export as run
    from truetune.training.prove_merge_or_export import quiet_transformers_bars_and_warnings as hush

    hush()
    made = run(
        model, options.pop("out"), prove=not no_proof, say=status_printer(quiet=quiet), **options
    )
    value = export_page_values(made)
    write_html_page(html, "export", value)
    if output_format == "json":
        print_json("export", value)
    else:
        _print_place_if_quiet_else_all(
            quiet, made.failed, made.path, lambda: render_exported(made, make_console())
        )
    return int(made.failed)


def _export_renamed_adapter(
    model: str, engine: str | None, release: str | None, options: dict[str, Any]
) -> int:
    """Copy an adapter under the names that an engine serves, and print where it is; gives the exit code."""
    from truetune.training.rename_adapter_for_engine import rename_adapter_for_engine

    if engine is None or release is None:
        raise UsageError("expected --for ENGINE and --engine-version RELEASE together")
    renamed_adapter = rename_adapter_for_engine(
        model, options["out"], engine, release, base=options["base"]
    )
    print_status(
        f"{renamed_adapter.tensors:,} tensors: base_model.model.{renamed_adapter.old} is now"
        f" base_model.model.{renamed_adapter.new}"
    )
    click.echo(renamed_adapter.folder)
    return 0


def _print_place_if_quiet_else_all(
    quiet: bool, failed: bool, place: Any, draw: Callable[[], None]
) -> None:
    """Print where the result is, or all that is known of it; of what failed, always all."""
    if quiet and not failed:
        click.echo(place)
    else:
        draw()


@click.command(cls=Command, short_help="Compare two sets of weights, tensor by tensor.")
@click.argument("folders", metavar="[BEFORE] AFTER", nargs=-1, required=True)
@click.option(
    "--base", metavar="DIR", help="The weights before; of an adapter, else the base that it names."
)
@click.option(
    "--adapter",
    metavar="DIR",
    help="The adapter that was merged: is AFTER what base and adapter make?",
)
@add_report_options
@progress_option
def movement(
    folders: tuple[str, ...],
    base: str | None,
    adapter: str | None,
    no_progress: bool,
    **options: Any,
) -> int:
    """Compare the weights in AFTER, a model or an adapter, with those in BEFORE (or --base): all values, no torch
    needed.

    A table says for each kind of tensor how many values are bit-identical and how far it moved, the least moved first;
    findings name frozen norms, dead adapters, untouched rows of new tokens, and a merge that was rounded away.

    \b
    Examples:
      truetune movement path/to/base outputs/model
      truetune movement outputs/adapter
      truetune movement merged --base path/to/base --adapter outputs/adapter -o movement.json
    """
    from truetune.checks.weight_diff_report import movement as run
    from truetune.checks.weight_diff_report import weight_change_rule_names
    from truetune.report.progress_bars import comparison_bar
    from truetune.settings.run_spec import RunSpec

    before, after = _weights_folders_before_and_after(folders, base)
    deliver = Delivery.of(options)
    print_renamed_rules((*options["select"], *options["ignore"]))
    with comparison_bar(off=no_progress or deliver.quiet) as progress:
        report = run(
            after,
            base=before,
            adapter=adapter,
            spec=RunSpec(
                **{"select": weight_change_rule_names(), **drop_options_not_given(options)}
            ),
            progress=progress,
        )
    return deliver(report)


def _weights_folders_before_and_after(
    folders: tuple[str, ...], base: str | None
) -> tuple[str | None, str]:
    """The folder of the weights before, if one is named, and that of the weights after.

    Raises UsageError for more folders than two, and for two beside --base.
    """
    if len(folders) == 1:
        return base, folders[0]
    if len(folders) > 2 or base is not None:
        raise UsageError(
            f"{' '.join(folders)}: expected truetune movement BEFORE AFTER, or AFTER with --base BEFORE"
        )
    return folders[0], folders[1]
