"""Options are on a separate line, and the command above never gets them.

## What it does
Looks for lines in a shell script that begin with an option (`--learning_rate 1e-4`) but continue no command: the line
before has no backslash, has a space after it, or is a comment in the middle of the command.

## Why it is bad
The shell ends the command there. Training runs to the end with the defaults of all options below, and only then the
shell prints `--learning_rate: command not found`.

## Example
```bash
llamafactory-cli train --stage sft --do_train --dataset own --template qwen \\
    --model_name_or_path some/model --output_dir out --cutoff_len 2048
    --learning_rate 1e-4 --num_train_epochs 3.0
```

## Use instead
```bash
llamafactory-cli train --stage sft --do_train --dataset own --template qwen \\
    --model_name_or_path some/model --output_dir out --cutoff_len 2048 \\
    --learning_rate 1e-4 --num_train_epochs 3.0
```

## Fix safety
The options take effect for the first time.

## References
- hiyouga/LLaMA-Factory#3300
- the Bash manual: a backslash joins lines where nothing but the line's end follows it
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.errors import format_name_list
from truetune.parsing.shell_commands import CommandFile, ShellCommand

SHELL_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch")
SHEBANG = re.compile(r"#!\S*(?:/env )?\S*\b(?:ba|z|da)?sh\b")
HERE_DOCUMENT = re.compile(r"<<-?\s*['\"]?(?P<end>\w+)['\"]?")
OPTION = re.compile(r"--[A-Za-z][\w-]*(?:=.*)?", re.S)
PATTERN_OF_CASE = re.compile(r"\s*[^\s|()]+(?:\s*\|\s*[^\s|()]+)*\s*\)")
"""`--model | -m )`: what a script does if it is started with this option"""


class OptionsCutFromTheirCommand(CommandRule):
    code = "CMD192"
    fault = Fault.SETTINGS_NOT_USED
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "error"
    stability = "preview"
    what = "commands with options"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ShellCommand]:
        """The commands that have an option."""
        for command in file.commands:
            if any(OPTION.fullmatch(word) for word in command.words):
                yield command

    def findings(self) -> Iterator[Finding]:
        if not _is_shell_script(self.subject):
            return
        for number, line, why in _lines_of_lost_options(self.subject.text):
            lost = [word for word in line.split() if OPTION.fullmatch(word)]
            yield self.finding(
                f"{format_name_list(lost)} never {'reaches' if len(lost) == 1 else 'reach'} the command above: {why}",
                "end the line above with a backslash and nothing after it, and move comments out of the command",
                cases=[self.case_at(number, line.strip()[:120])],
            )


def _is_shell_script(file: CommandFile) -> bool:
    """Is each line of a file the shell's? A Dockerfile takes comments inside of a command, a Makefile has rules."""
    return Path(file.path).suffix in SHELL_SUFFIXES or SHEBANG.match(file.text) is not None


def _lines_of_lost_options(text: str) -> Iterator[tuple[int, str, str]]:
    """The lines that begin with an option and continue no command, each with its number and the reason; of several
    that follow each other, the first.
    """
    lines = text.splitlines()
    inside = _lines_inside_texts(lines)
    is_lost_before = False
    for index, line in enumerate(lines):
        begins = line.split(maxsplit=1)[:1]
        is_option = (
            bool(begins)
            and OPTION.fullmatch(begins[0]) is not None
            and PATTERN_OF_CASE.match(line) is None
        )
        why = _reason_of_cut(lines, index) if is_option and index not in inside else ""
        if why and not is_lost_before:
            yield index + 1, line, why
        is_lost_before = bool(why) or (is_lost_before and is_option)


def _reason_of_cut(lines: Sequence[str], index: int) -> str:
    """Why the command ends before a line; empty where the line continues it, or nothing is above it."""
    above = lines[index - 1] if index else ""
    if not above.strip():
        return ""
    if above.lstrip().startswith("#"):
        # A comment ends the command, if it is in one.
        before = next(
            (one for one in reversed(lines[: index - 1]) if not one.lstrip().startswith("#")), ""
        )
        return "a comment ends it" if before.endswith("\\") else ""
    if above.endswith("\\"):
        return ""
    if above.rstrip().endswith("\\"):
        return "a space after its backslash ends it"
    return "its last line has no backslash"


def _lines_inside_texts(lines: Sequence[str]) -> frozenset[int]:
    """The lines that begin inside of quotes, of an array or of a here-document, where options are no commands."""
    inside: set[int] = set()
    quote, depth, end = "", 0, ""
    for index, line in enumerate(lines):
        if quote or depth or end:
            inside.add(index)
        if end:
            end = "" if line.strip() == end else end
            continue
        begin = HERE_DOCUMENT.search(line)
        quote, depth = _open_quote_and_brackets_after_line(line, quote, depth)
        end = begin["end"] if begin is not None and not quote else ""
    return frozenset(inside)


def _open_quote_and_brackets_after_line(line: str, quote: str, depth: int) -> tuple[str, int]:
    """The open quote and the open brackets after a line, from those before it."""
    is_escaped = False
    for place, sign in enumerate(line):
        if is_escaped:
            is_escaped = False
        elif sign == "\\" and quote != "'":
            is_escaped = True
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign == "#" and (place == 0 or line[place - 1].isspace()):
            break
        else:
            depth = max(0, depth + (sign == "(") - (sign == ")"))
    return quote, depth
