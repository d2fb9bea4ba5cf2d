"""The process of a reward function: its limits, what it notes, and replies that are none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from truetune.generation.reward_trial import Access
from truetune.rewards.reward_process import (
    RewardCallHung,
    RewardFunctionError,
    RewardProcess,
    RewardProcessEnded,
    RewardTarget,
)


def process_of(folder: Path, body: str, seconds: float = 1.0) -> RewardProcess:
    """A process with a function `scored` of this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    (folder / "mine.py").write_text(f"import os\ndef scored(completions, **kwargs):\n{lines}")
    return RewardProcess(RewardTarget(str(folder / "mine.py"), "scored"), seconds)


def call(
    process: RewardProcess, *completions: str, seconds: float = 5.0
) -> tuple[float | None, ...]:
    prompts = ["?"] * len(completions)
    ids = [[1]] * len(completions)
    return process.call(completions, prompts, ids, {}, seconds=seconds).scores


def test_none_and_other_numbers_are_scores(tmp_path: Path) -> None:
    with process_of(tmp_path, "return [True, 2, None, float('inf')]") as process:
        assert call(process, *"abcd") == (1.0, 2.0, None, float("inf"))


def test_a_call_that_hangs_names_its_line_and_the_next_one_is_scored(tmp_path: Path) -> None:
    body = "while completions[0] == 'hang':\n    pass\nreturn [1.0]"
    with process_of(tmp_path, body) as process:
        with pytest.raises(RewardCallHung) as hung:
            call(process, "hang", seconds=0.5)
        assert hung.value.line in ("mine.py:3", "mine.py:4")
        assert call(process, "fine") == (1.0,)


def test_what_it_prints_and_reads_is_no_reply(tmp_path: Path) -> None:
    body = (
        "print('{}')\nos.write(1, b'{}' + bytes([10]))\nassert os.read(0, 1) == b''\nreturn [0.5]"
    )
    with process_of(tmp_path, body) as process:
        assert call(process, "a") == (0.5,)


def test_a_reply_of_the_users_own_is_refused(tmp_path: Path) -> None:
    body = (
        "for number in range(3, 20):\n"
        "    try:\n"
        "        os.write(number, b'{\"scores\": 3}' + bytes([10]))\n"
        "    except OSError:\n"
        "        pass\n"
        "return [0.5]"
    )
    with process_of(tmp_path, body) as process, pytest.raises(RewardFunctionError):
        call(process, "a")


def test_a_process_that_is_killed(tmp_path: Path) -> None:
    ended = pytest.raises(RewardProcessEnded, match="the process ended with code 137")
    with process_of(tmp_path, "os.kill(os.getpid(), 9)") as process, ended:
        call(process, "a")


def test_accesses_are_noted_once_with_their_line(tmp_path: Path) -> None:
    body = "import json.tool\nopen('kept.txt', 'a').close()\nreturn [0.0 for _ in completions]"
    with process_of(tmp_path, body) as process:
        call(process, "a")
        call(process, "b")
        assert process.note_accesses() == (Access("writes", "kept.txt", "mine.py:4"),)
    assert not Path("kept.txt").exists()


def test_memory_is_bounded(tmp_path: Path) -> None:
    with process_of(tmp_path, "return [float(len(bytearray(1 << 36)))]") as process:
        result = process.call(["a"], ["?"], [[1]], {}, seconds=5.0)
    assert result.raised.startswith("MemoryError")


def test_nothing_is_left_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with process_of(tmp_path, "return [0.0]") as process:
        call(process, "a")
    assert sorted(os.listdir(tmp_path)) == ["mine.py"]
