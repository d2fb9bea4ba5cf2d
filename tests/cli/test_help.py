"""Each command's help: what it does, examples that parse, options of one name and meaning."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict

import click
import pytest

from truetune.cli import truetune_group
from truetune.cli.help_layout import COMMANDS_BY_STAGE

ALL = sorted(truetune_group.commands)
NO_JSON = {"demo", "completion", "view", "skill", "mcp", "lsp"}
"""Commands whose outcome is for people, a shell, an assistant or an editor"""


def shown(name: str) -> str:
    command = truetune_group.commands[name]
    return command.get_help(
        click.Context(command, info_name=f"truetune {name}", max_content_width=110)
    )


def examples(name: str) -> list[str]:
    """The lines below `Examples:`, without what stands in parentheses behind them."""
    below = shown(name).partition("Examples:\n")[2].partition("\n\n")[0]
    return [re.sub(r" {2,}\(.*\)$", "", line).strip() for line in below.splitlines()]


@pytest.mark.parametrize("name", ALL)
def test_help(name: str) -> None:
    command = truetune_group.commands[name]
    text = command.help or ""
    assert len(text.partition("\n\n")[0]) > 40
    assert command.short_help, f"{name} has no short help"
    assert len(command.short_help) <= 64
    assert all(param.help for param in command.params if isinstance(param, click.Option))


@pytest.mark.parametrize("name", ALL)
def test_examples_parse(name: str) -> None:
    lines = examples(name)
    assert any(line.startswith(f"truetune {name}") for line in lines), f"{name} has no examples"
    for line in lines:
        words = shlex.split(line.partition(" > ")[0])
        assert words[0] == "truetune"
        truetune_group.commands[words[1]].make_context(words[1], words[2:])


def test_each_command_stands_at_one_stage() -> None:
    staged = [name for names in COMMANDS_BY_STAGE.values() for name in names]
    assert len(staged) == len(set(staged))
    assert set(ALL) <= set(staged)


def test_the_overview_fits_a_screen() -> None:
    # click keeps the help option of its first context: another one here would change later tests.
    names = truetune_group.context_settings["help_option_names"]
    context = click.Context(
        truetune_group, info_name="truetune", terminal_width=80, help_option_names=names
    )
    lines = truetune_group.get_help(context).splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", [name for name in ALL if name not in NO_JSON])
def test_json(name: str) -> None:
    assert any("--json" in param.opts for param in truetune_group.commands[name].params)


def test_options_of_one_name_are_alike() -> None:
    seen: dict[str, dict[tuple[str, ...], set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, command in truetune_group.commands.items():
        for param in command.params:
            if isinstance(param, click.Option):
                long = max(param.opts, key=len)
                seen[long][tuple(sorted(param.opts))].add(name)
    other = {long: dict(spellings) for long, spellings in seen.items() if len(spellings) > 1}
    assert not other, "an option has a short form in one command and not in another"


def test_a_short_form_means_one_thing() -> None:
    long = defaultdict(set)
    for command in truetune_group.commands.values():
        for param in command.params:
            for short in (opt for opt in param.opts if re.fullmatch(r"-\w", opt)):
                long[short].add(max(param.opts, key=len))
    assert {short: names for short, names in long.items() if len(names) > 1} == {}
