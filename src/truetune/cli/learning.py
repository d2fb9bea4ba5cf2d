"""The commands that teach: rules, explain, demo."""

from __future__ import annotations

import click

from truetune.cli.output import console


@click.command()
def rules() -> int:
    """List the rules."""
    from truetune.report.terminal import render_rules

    render_rules(console())
    return 0


@click.command(short_help="Show the page of a rule.")
@click.argument("rule")
def explain(rule: str) -> int:
    """Show the page of a rule, by name or code: what it does, why it is bad, and how to mend it."""
    from truetune.report.terminal import render_page

    render_page(rule, console())
    return 0


@click.command(short_help="See it on a small data set that ships with truetune.")
def demo() -> int:
    """Check a small data set with planted faults and its mended twin, and prove by training what a pad token can do."""
    from truetune.demo.run import demo as run

    return run(console())
