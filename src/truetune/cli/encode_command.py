"""`truetune encode`: rows to ids and labels; with --verify, a cache against the rows that it was made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import (
    add_format_options,
    html_option,
    make_console,
    print_json,
    progress_option,
    quiet_option,
    write_html_page,
)
from truetune.cli.shared_options import add_spec_options, read_settings_of_run_with_data
from truetune.errors import UsageError

if TYPE_CHECKING:
    from truetune.settings.run_spec import RunSpec

OVERFLOWS = ("drop", "error", "truncate-prompt", "split")
TRAINERS = ("transformers", "axolotl", "llama-factory")


@click.command(cls=Command, short_help="Encode data once: input_ids and labels for any trainer.")
@click.argument("data", nargs=-1, metavar="[DATA]...")
@add_spec_options
@click.option(
    "-o",
    "--output",
    "out",
    metavar="DIR",
    help=(
        "Folder to write, or the URI of one (s3://bucket/folder). Without it: a folder of --cache,"
        " named by its key."
    ),
)
@click.option(
    "--cache",
    metavar="DIR",
    help="Where encoded data is kept and found again (default: the user's cache).",
)
@click.option(
    "--overflow",
    type=click.Choice(OVERFLOWS),
    help=(
        "An example longer than --max-length: leave it out (default), end the run, leave out its"
        " oldest turns and then the beginning of its question, or split it across examples."
    ),
)
@click.option(
    "--packing",
    type=click.Choice(["none", "best-fit"]),
    help="Several examples in one row of at most --max-length tokens.",
)
@click.option(
    "--content-specials",
    type=click.Choice(["error", "keep", "text"]),
    help=(
        "Control tokens inside contents: an error (default), encoded as they are, or as plain text."
    ),
)
@click.option(
    "--on-error",
    type=click.Choice(["error", "skip"]),
    help=(
        "A row that can't be encoded: end the run (default), or write it to rejected.jsonl and"
        " continue."
    ),
)
@click.option(
    "--file-format",
    type=click.Choice(["parquet", "arrow"]),
    help="Parquet (default), or Arrow as datasets.load_from_disk takes it.",
)
@click.option(
    "--for",
    "trainer",
    type=click.Choice(TRAINERS),
    help=(
        "Who reads the rows: transformers (default; TRL too), or a trainer that wants other"
        " columns."
    ),
)
@click.option(
    "--loss-weights", is_flag=True, default=None, help="Write the messages' weights as a column."
)
@click.option(
    "--record-root",
    is_flag=True,
    default=None,
    help="Write the folder of the data into manifest.json (default: no absolute path).",
)
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Processes (default: one a core)."
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="This machine, or a Ray cluster.",
)
@click.option(
    "--verify",
    metavar="CACHE",
    help=(
        "Write nothing: compare the rows of CACHE (files or a folder of token ids) with what DATA"
        " encode to."
    ),
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Encode the first rows only, write nothing, and say what would be.",
)
@add_format_options()
@html_option
@quiet_option
@progress_option
def encode(
    out: str | None,
    cache: str | None,
    jobs: int | None,
    engine: str,
    dry_run: bool,
    verify: str | None,
    output_format: str,
    html: str | None,
    quiet: bool,
    no_progress: bool,
    **options: Any,
) -> int:
    """Encode DATA (files, folders, globs, or a settings file) with a tokenizer: ids and labels, ready for any trainer.

    With --verify the exit code is 1 if the cache holds other ids or labels than the data encode to.

    \b
    Examples:
      truetune encode chats.jsonl -t path/to/model -o encoded
      truetune encode chats.jsonl -t path/to/model --verify last_run_prepared
      truetune encode chats.jsonl -t path/to/model -o packed --max-length 4096 --packing best-fit
      truetune encode truetune.yaml             (settings from a file)
    """
    from truetune.encoding.encode_data_set import encode as run
    from truetune.report.encode_and_verify_terminal import encoded_page_values, render_encoded
    from truetune.report.progress_bars import encoding_bar

    if dry_run and html:
        raise UsageError("--dry-run has no page: leave out one of --dry-run and --html")
    spec = read_settings_of_run_with_data(options, quiet=quiet)
    _refuse_encoded_data(spec)
    if verify is not None:
        if dry_run or html or out:
            raise UsageError("--verify writes nothing: leave out --dry-run, --html and -o")
        return _verify_cache(spec, verify, output_format)
    if dry_run:
        return _print_estimate(spec, out, cache, output_format)
    try:
        with encoding_bar(off=no_progress or quiet) as progress:
            encoded = run(spec, out, cache=cache, jobs=jobs, engine=engine, progress=progress)
    except KeyboardInterrupt:
        click.echo(
            "truetune: interrupted; run the same command again, and it continues from here",
            err=True,
        )
        raise
    value = encoded_page_values(encoded, spec.tokenizer)
    write_html_page(html, "encode", value)
    if output_format == "json":
        print_json("encode", value)
    elif quiet:
        click.echo(encoded.folder)
    else:
        render_encoded(encoded, make_console())
    return 0


def _print_estimate(spec: RunSpec, out: str | None, cache: str | None, output_format: str) -> int:
    """Print what `--dry-run` estimates; gives the exit code."""
    from truetune.encoding.encode_data_set import estimate
    from truetune.report.encode_and_verify_terminal import estimate_json, render_estimate

    outlook = estimate(spec, out, cache=cache)
    if output_format == "json":
        print_json("estimate", estimate_json(outlook))
    else:
        render_estimate(outlook, make_console())
    return 0


def _refuse_encoded_data(spec: RunSpec) -> None:
    """Raise UsageError for data that is encoded already."""
    from truetune.checks.inspect_tokenized import is_tokenized

    for path in spec.data:
        if is_tokenized(path, spec):
            raise UsageError(
                f"{path}: the rows are token ids already; check them (truetune check {path} -t"
                " TOKENIZER), or compare them with the rows that they were made of (truetune"
                f" encode DATA -t TOKENIZER --verify {path})"
            )


def _verify_cache(spec: RunSpec, path: str, output_format: str) -> int:
    """Compare a cache with the rows that it was made of, and print the differences; gives the exit
    code.
    """
    from truetune.report.encode_and_verify_terminal import render_cache_comparison
    from truetune.tokenized.open_token_cache import open_token_cache
    from truetune.tokenized.verify_token_cache import verify_cache

    cache_comparison = verify_cache(spec, open_token_cache(path))
    if output_format == "json":
        print_json("verify", cache_comparison.as_json())
    else:
        render_cache_comparison(cache_comparison, path, make_console())
    return 0 if cache_comparison.is_same else 1
