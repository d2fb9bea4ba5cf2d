"""Commands that a shell script puts together in arrays."""

from __future__ import annotations

import pytest

from truetune.parsing.shell_commands import parse_command_file

KNOWN = {
    "one line": ("A=(--lr 1e-5)", ["--lr", "1e-5"]),
    "several lines": ("A=(\n  --lr 1e-5  # as published\n  'a b'\n)", ["--lr", "1e-5", "a b"]),
    "appended": ("A=(x)\nA+=(y)", ["x", "y"]),
    "under a condition": ("A=(x)\nif [ $1 ]; then\n  A+=(y)\nfi", ["x", "y"]),
    "local": ("local -a A=(x)", ["x"]),
    "parenthesis in quotes": ('A=("f(x)" y)', ["f(x)", "y"]),
    "variable": ("M=base\nA=($M)", ["base"]),
    "empty": ("A=()\nA+=(x)", ["x"]),
}
UNKNOWN = {
    "set twice": "A=(x)\nA=(y)",
    "in a loop": "A=(x)\nfor i in 1 2; do\n  A+=($i)\ndone",
    "in two arms": "A=(x)\nif [ $1 ]; then\n  true\nelse\n  A+=(y)\nfi",
    "behind a condition": "A=(x)\n[ $1 ] && A+=(y)",
    "of a command": "A=($(ls))",
    "never closed": "A=(x",
    "appended to nothing": "A+=(x)",
}


def words_of_run(text: str) -> list[str]:
    commands = parse_command_file(f'{text}\npython t.py "${{A[@]}}"\n', "run.sh").commands
    return [word for one in commands if one.words[0] == "python" for word in one.words[2:]]


@pytest.mark.parametrize(("text", "words"), KNOWN.values(), ids=KNOWN)
def test_arrays_are_laid_out(text: str, words: list[str]) -> None:
    assert words_of_run(text) == words


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN)
def test_arrays_that_are_not_known_stay_open(text: str) -> None:
    assert words_of_run(text) in (["${A[@]}"], [])


def test_the_lines_behind_an_array_keep_their_numbers() -> None:
    commands = parse_command_file('A=(\n x\n)\npython t.py "${A[@]}"\n', "run.sh").commands
    assert [(one.words, one.line) for one in commands] == [(("python", "t.py", "x"), 4)]
