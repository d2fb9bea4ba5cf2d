"""Commands whose error stream goes where the output goes."""

from __future__ import annotations

import pytest

from truetune.parsing.shell_commands import parse_command_file


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("lm_eval --log_samples 2>&1 | tee a.log", ("lm_eval", "--log_samples")),
        ("python train.py --steps 2 2>&1", ("python", "train.py", "--steps", "2")),
        ("python train.py > a.log 2>&1", ("python", "train.py", ">", "a.log")),
        ("python train.py --n 2", ("python", "train.py", "--n", "2")),
    ],
)
def test_joined_streams_are_no_words(line: str, words: tuple[str, ...]) -> None:
    assert parse_command_file(line, "run.sh").commands[0].words == words
