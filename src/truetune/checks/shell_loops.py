"""Finds the loops of a shell script: which commands they repeat, and what differs from one pass to
the next.

How it works: the commands are read in order, with the keywords that begin and end a loop. A variable follows a loop
where its value holds the loop's variable, over any number of assignments.

The trade-off: nothing is run. A variable that a pass sets by a command, a count, or more than once may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.parsing.shell_commands import CommandFile, ShellCommand

MAX_LOOPS = 100
"""Loops that are open at once. Chosen by hand: a bound on broken scripts whose loops never end"""
NAME = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*|\d)")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
ASSIGNED = re.compile(
    r"(?:^|[\s;&|({])([A-Za-z_]\w*)(\+?)=((?:\$\([^\n)]*\)|\"[^\"\n]*\"|[^\s;&])*)", re.MULTILINE
)
COUNTED = re.compile(
    r"\b([A-Za-z_]\w*)(?:\+\+|--(?!\w)|[-+*]=)|\bread\s+(?:-\w+\s+)*([A-Za-z_]\w*)"
)
HEAD = re.compile(r"[(\s]*([A-Za-z_]\w*)=")
ONE_PLAIN_WORD = re.compile(r"[^\n]*\bfor[ \t]+\w+[ \t]+in[ \t]+[\w./-]+[ \t]*(?:;|\n)")
"""The head of a loop over one word that the shell does not expand"""
DIFFERS = re.compile(r"\$\(|`|\$\$|\$\{?(?:RANDOM|SECONDS|EPOCHSECONDS|BASHPID)\b")
KEYWORDS = ("do", "then", "else", "{", "!", "if", "elif", "time", "nohup")
"""Words before a command that belong to the shell"""


@dataclass(frozen=True, slots=True)
class ShellLoop:
    """A loop with what it repeats."""

    names: frozenset[str]
    """Its variables"""
    line: int
    text: str
    """Of its lines"""
    commands: tuple[ShellCommand, ...]
    values: dict[str, set[str]]
    """Variable of the script -> the names in its values"""

    @property
    def has_one_pass(self) -> bool:
        """Does the loop go over one word?"""
        return ONE_PLAIN_WORD.match(self.text) is not None

    def loop_variables_in(self, text: str) -> frozenset[str]:
        """The loop's variables that a text depends on."""
        reached: set[str] = set()
        waiting = set(NAME.findall(text))
        while waiting:
            name = waiting.pop()
            reached.add(name)
            waiting |= self.values.get(name, set()) - reached
        return self.names & reached

    def is_same_in_each_pass(self, text: str) -> bool:
        """Does a text surely not change from pass to pass?"""
        if DIFFERS.search(text) or self.loop_variables_in(text):
            return False
        counted = {name for pair in COUNTED.findall(self.text) for name in pair}
        assigned = ASSIGNED.findall(self.text)
        names = [name for name, _, _ in assigned]
        differing = {
            name
            for name, is_appended, value in assigned
            if is_appended or DIFFERS.search(value) or names.count(name) > 1
        }
        return not set(NAME.findall(text)) & (counted | differing)


def values_of_variables(text: str) -> dict[str, set[str]]:
    """The variables of a script, each with the names of those in its values."""
    values: dict[str, set[str]] = {}
    for name, _, value in ASSIGNED.findall(text):
        # In `$((step * 2))` variables stand without their sign.
        names = IDENTIFIER.findall(value) if "$((" in value else NAME.findall(value)
        values.setdefault(name, set()).update(names)
    return values


def find_loops(file: CommandFile) -> Iterator[ShellLoop]:
    """The loops of a file, inner ones with the variables of those around them left out."""
    values = values_of_variables(file.text)
    lines = file.text.splitlines()
    open_loops: list[tuple[frozenset[str], int, list[ShellCommand]]] = []
    for command in file.commands:
        words = without_leading_shell_keywords(command.words)
        names = _variables_set_by_loop_head(words)
        for _, _, inside in open_loops:
            inside.append(command)
        if names is not None and len(open_loops) < MAX_LOOPS:
            # The list of an inner loop may name the variable of an outer one.
            for name in names:
                values.setdefault(name, set()).update(NAME.findall(" ".join(words[2:])))
            open_loops.append((names, command.line, []))
        elif words[:1] == ("done",) and open_loops:
            names, line, inside = open_loops.pop()
            text = "\n".join(lines[line - 1 : command.line])
            yield ShellLoop(names, line, text, tuple(inside), values)


def without_leading_shell_keywords(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a command without `do`, `then`, `if` before it."""
    begin = 0
    while begin < len(words) and words[begin] in KEYWORDS:
        begin += 1
    return words[begin:]


def _variables_set_by_loop_head(words: tuple[str, ...]) -> frozenset[str] | None:
    """The variables that a loop sets; None where the words begin no loop."""
    if words[:1] in (("for",), ("select",)) and len(words) > 1:
        if words[1].isidentifier():
            return frozenset((words[1],))
        counters = [HEAD.match(word) for word in words[1:]]
        return frozenset(one[1] for one in counters if one is not None)
    if words[:1] not in (("while",), ("until",)):
        return None
    if "read" in words:
        behind = words[words.index("read") + 1 :]
        return frozenset(word for word in behind if word.isidentifier())
    return frozenset(NAME.findall(" ".join(words)))
