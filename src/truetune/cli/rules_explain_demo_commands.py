"""The commands that need nothing of the user's: rules, explain, demo, completion."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import (
    add_format_options,
    make_console,
    print_json,
    print_renamed_rules,
)
from truetune.cli.shell_completion import complete_rule_names, completion_script
from truetune.cli.suggest_meant_words import (
    COMMAND_SYNONYMS,
    MIN_SHARE,
    best_option_with_shared_words,
)
from truetune.errors import UsageError

if TYPE_CHECKING:
    from truetune.checks.explaining.search_rules_messages_guides_commands import Hit


@click.command(cls=Command, short_help="List the faults, and the rules that find them.")
@click.argument("names", nargs=-1, metavar="[RULE]...", shell_complete=complete_rule_names)
@click.option("--faults", "only_faults", is_flag=True, help="List the faults alone, a line each.")
@add_format_options()
def rules(names: tuple[str, ...], output_format: str, *, only_faults: bool) -> int:
    """List the rules below the faults that they find: code, name, highest severity, stability, first release, and what
    is wrong where it fires. RULE is a name, a code, the beginning of a code, a fault, or a stability (stable, preview).
    A fault is what is wrong with a run; its rules find it in data, settings, scripts, logs and checkpoints. A stable
    rule has a case in the bug bench, a test on real material and a public source.

    \b
    Examples:
      truetune rules
      truetune rules --faults
      truetune rules PREF
      truetune rules prompts-in-loss
      truetune rules preview
      truetune rules --json
    """
    from truetune.checks.rule_catalogue import select_rules
    from truetune.report.rules_terminal import faults_json, render_faults, render_rules, rules_json

    print_renamed_rules(names)
    chosen = select_rules(names, ())
    if output_format == "json" and only_faults:
        print_json("faults", {"faults": faults_json(chosen)})
    elif output_format == "json":
        print_json("rules", {"rules": rules_json(chosen)})
    elif only_faults:
        render_faults(make_console(), chosen)
    else:
        render_rules(make_console(), chosen)
    return 0


@click.command(
    cls=Command,
    short_help="Show the page of a rule, or find it by a symptom.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar="RULE | FAULT | WORDS...",
    shell_complete=complete_rule_names,
)
@add_format_options()
@click.pass_context
def explain(context: click.Context, words: tuple[str, ...], output_format: str) -> int:
    """Show the page of RULE, by name or code: what it does, why it is bad, and how to fix it. A known message or a
    guide is shown by its name in the same way, and for a FAULT the rules that find it.

    Any other WORDS are searched in rules, messages, guides and commands: the five that fit best.

    \b
    Examples:
      truetune explain TOK001
      truetune explain prompts-in-loss
      truetune explain cuda-out-of-memory
      truetune explain "loss is flat"
    """
    from truetune.checks.explaining.is_written_like_rule_name import is_written_like_rule_name
    from truetune.checks.explaining.search_rules_messages_guides_commands import (
        list_topics,
        search_topics,
    )
    from truetune.report.explain_messages_and_guides_terminal import (
        find_message_or_guide,
        message_or_guide_json,
        render_message_or_guide,
        render_search_hits,
        search_hits_json,
    )

    question = " ".join(words)
    as_json = output_format == "json"
    topic = find_message_or_guide(question)
    if topic is not None:
        if as_json:
            print_json("topic", message_or_guide_json(topic))
        else:
            render_message_or_guide(topic, make_console())
        return 0
    if is_written_like_rule_name(question) and not question.startswith("-"):
        print_renamed_rules([question])
        _print_rule_page(question, as_json=as_json)
        return 0
    group = context.parent.command if context.parent else None
    if question.startswith("-"):
        hits = our_options_like_foreign_one(question, group)
    else:
        commands = getattr(group, "commands", {})
        helps = {name: command.help or "" for name, command in commands.items()}
        hits = search_topics(question, list_topics(helps, COMMAND_SYNONYMS))
    if not hits:
        raise UsageError(
            f"nothing is known of {question!r}; `truetune rules` lists the rules, `truetune -h`"
            " the commands"
        )
    if as_json:
        print_json("topics", search_hits_json(hits))
    else:
        render_search_hits(question, hits, make_console())
    return 0


def _print_rule_page(question: str, *, as_json: bool) -> None:
    """Print the page of a rule by its name or code, or that of a fault. Raises UsageError where there is none."""
    # Imports every rule: a search must not wait for it.
    from truetune.checks.rule_catalogue import find_fault
    from truetune.report.rules_terminal import (
        fault_json,
        render_fault,
        render_rule_page,
        rule_page_json,
    )

    fault = find_fault(question)
    if fault is not None and as_json:
        print_json("fault", fault_json(fault))
    elif fault is not None:
        render_fault(fault, make_console())
    elif as_json:
        print_json("rule", rule_page_json(question))
    else:
        render_rule_page(question, make_console())


def our_options_like_foreign_one(question: str, group: click.Command | None) -> list[Hit]:
    """Our options that an option of another tool may mean."""
    from truetune.checks.explaining.search_rules_messages_guides_commands import Hit, Topic

    hits = []
    for name, command in getattr(group, "commands", {}).items():
        share, option = best_option_with_shared_words(question, command)
        if share < MIN_SHARE:
            continue
        (param,) = (param for param in command.params if option in param.opts)
        words = tuple(re.split(r"[-_.]+", question.strip("-")))
        hits.append(
            Hit(
                Topic("option", f"{name} {option}", getattr(param, "help", "") or "", ""),
                share,
                words,
            )
        )
    hits.sort(key=lambda hit: -hit.score)
    first = {hit.topic.name.partition(" ")[2]: hit for hit in reversed(hits)}
    return sorted(first.values(), key=hits.index)[:5]


@click.command(cls=Command, short_help="See it on a small data set that ships with truetune.")
def demo() -> int:
    """Check a small data set with planted faults and a corrected copy, and prove by training what a pad token can do.

    The proof needs truetune[train], and takes about a minute. The exit code is 1 if it does not show what it should.

    \b
    Examples:
      truetune demo
    """
    from truetune.demo.run_demo import run_demo as run

    return run(make_console())


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
    click.echo(completion_script(shell))
    return 0
