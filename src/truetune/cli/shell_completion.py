"""Completion in a shell: the words that there are, found without an import of the rules; and the
script that asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
from click.shell_completion import CompletionItem, get_completion_class

from truetune.errors import UsageError
from truetune.package import PACKAGE_FOLDER

RULE_CODE_LINE = re.compile(r'^    code = "([A-Z]+\d{3})"', re.M)
FAULT_LINE = re.compile(r'^    ([A-Z0-9_]+) = "', re.M)
PATH_METAVARS = {
    "DIR",
    "FILE",
    "PATH",
    "SETTINGS",
    "RUN",
    "ADAPTER",
    "MODEL",
    "AFTER",
    "OTHER",
    "DATA",
    "RUN_OR_RESULT",
}
"""What the help calls a path"""
COMPLETION_VARIABLE = "_TRUETUNE_COMPLETE"


def complete_rule_names(
    context: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The rules whose name or code begins so, and the faults."""
    completion_items = [
        CompletionItem(word, help=help)
        for name, code in _rule_names_and_codes()
        for word, help in ((name, code), (code, name))
        if word.startswith(incomplete)
    ]
    completion_items += [
        CompletionItem(name, help="fault") for name in _fault_names() if name.startswith(incomplete)
    ]
    return sorted(completion_items, key=lambda item: str(item.value))


def _rule_names_and_codes() -> Iterator[tuple[str, str]]:
    """(name, code) of every rule."""
    for path in PACKAGE_FOLDER.glob("checks/*/*.py"):
        if match := RULE_CODE_LINE.search(path.read_text(encoding="utf-8")):
            yield path.stem.replace("_", "-"), match[1]


def _fault_names() -> Iterator[str]:
    """The name of every fault."""
    text = (PACKAGE_FOLDER / "checks" / "faults.py").read_text(encoding="utf-8")
    for name in FAULT_LINE.findall(text):
        yield name.lower().replace("_", "-")


def let_shell_complete_paths(command: click.Command) -> None:
    """Let a shell complete paths where a command takes them: without it, it would offer nothing at all."""
    for param in command.params:
        names = set(re.findall(r"[A-Z_]+", str(param.metavar or (param.name or "").upper())))
        if param.type is click.STRING and names & PATH_METAVARS:
            param.type = click.Path()


def completion_script(shell: str) -> str:
    """The script that a shell reads at its start, for completion. Raises UsageError for a shell
    that there is no script for.
    """
    maker = get_completion_class(shell)
    if maker is None:
        raise UsageError(f"no completion for {shell}")
    return maker(click.Command("truetune"), {}, "truetune", COMPLETION_VARIABLE).source()
