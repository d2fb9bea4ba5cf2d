"""`truetune train`."""

from __future__ import annotations

import click

from truetune.cli.output import console


@click.command(short_help="Train: SFT, LoRA, DPO, ORPO, KTO, checked before and watched meanwhile.")
@click.argument("settings", metavar="SETTINGS")
@click.option("-o", "--out", metavar="DIR", help="Folder of the run; else training.output_dir, else ./outputs.")
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE",
              help="A setting over those of SETTINGS: --set training.learning_rate=1e-4. Repeatable.")  # fmt: skip
@click.option("--force", is_flag=True, help="Train in spite of findings; the record says so.")
@click.option("--no-rehearsal", is_flag=True, help="Do not rehearse the run in miniature first.")
@click.option("-q", "--quiet", is_flag=True, help="Print the folder alone.")
def train(
    settings: str, out: str | None, pairs: tuple[str, ...], force: bool, no_rehearsal: bool, quiet: bool
) -> int:  # fmt: skip
    """Train as SETTINGS (a truetune.yaml, see `truetune init`) says.

    \b
    Examples:
      truetune train truetune.yaml
      truetune train truetune.yaml -o outputs/second --set training.learning_rate=1e-4
    """
    import truetune
    from truetune.cli.planning import nested
    from truetune.report.training import Terminal

    over = nested(pairs) | ({"rehearsal": False} if no_rehearsal else {})
    done = truetune.train(settings, out=out, force=force, listener=Terminal(console(err=True), quiet=quiet), **over)
    click.echo(done.folder)
    return 0
