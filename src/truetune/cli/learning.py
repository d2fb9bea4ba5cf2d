"""The commands that teach: rules, explain, demo, completion."""

from __future__ import annotations

import click

from truetune.cli.completing import rule_names, script
from truetune.cli.helping import Command
from truetune.cli.output import console, emit, form_options


@click.command(cls=Command, short_help="List the rules.")
@click.argument("names", nargs=-1, metavar="[RULE]...", shell_complete=rule_names)
@form_options()
def rules(names: tuple[str, ...], output_format: str) -> int:
    """List the rules: code, name, highest severity, and what is wrong where it fires. RULE is a name, a code, or the
    beginning of a code.

    \b
    Examples:
      truetune rules
      truetune rules TT5
      truetune rules --json
    """
    from truetune.checks.catalogue import choose
    from truetune.report.terminal import render_rules, rules_json

    chosen = choose(names, ())
    if output_format == "json":
        emit("rules", {"rules": rules_json(chosen)})
    else:
        render_rules(console(), chosen)
    return 0


@click.command(cls=Command, short_help="Show the page of a rule.")
@click.argument("rule", shell_complete=rule_names)
@form_options()
def explain(rule: str, output_format: str) -> int:
    """Show the page of RULE, by name or code: what it does, why it is bad, and how to mend it.

    \b
    Examples:
      truetune explain TT101
      truetune explain pad-is-stop-token
    """
    from truetune.report.terminal import render_page, rule_json

    if output_format == "json":
        emit("rule", rule_json(rule))
    else:
        render_page(rule, console())
    return 0


@click.command(cls=Command, short_help="See it on a small data set that ships with truetune.")
def demo() -> int:
    """Check a small data set with planted faults and its mended twin, and prove by training what a pad token can do.

    The proof needs truetune[train], and takes about a minute. The exit code is 1 where it does not show what it should.

    \b
    Examples:
      truetune demo
    """
    from truetune.demo.run import demo as run

    return run(console())


@click.command(cls=Command, short_help="Complete commands, options and rules in bash, zsh or fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print what SHELL needs to complete truetune's commands, options, choices, paths and names of rules.

    \b
    To install it, add to ~/.bashrc or ~/.zshrc (below compinit) the line
      eval "$(truetune completion bash)"        (or zsh)
    and for fish write it to ~/.config/fish/completions/truetune.fish

    \b
    Examples:
      truetune completion zsh
      truetune completion fish > ~/.config/fish/completions/truetune.fish
    """
    click.echo(script(shell))
    return 0
