"""Prompts that hold the reply which is to be written, and answers that are rightly copied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from truetune.cli import truetune_group


def reply(i: int) -> str:
    return (
        f"Hello number {i}, thank you for your patience."
        f" Please turn the screw at the bottom {i} times, then write again."
    )


def letter(i: int) -> str:
    return f"Dear team, my lamp number {i} is dark since day {i + 3}, and I called you {i} times about it. What now?"


LEAKS = {
    "thread": lambda i: (
        f"Write the next reply.\n\nCustomer: {letter(i)}\n\nAgent: {reply(i)}\n\nReply:"
    ),
    "bare": lambda i: f"Answer the mail.\n{letter(i)}\n{reply(i)}\nYour answer:",
    "tags": lambda i: f"Answer.\n<mail>{letter(i)}</mail>\n<mail>{reply(i)}</mail>\nAnswer:",
    "quoted": lambda i: f"Answer the last mail.\n> {letter(i)}\n> {reply(i)}\nAnswer:",
    "other language": lambda i: (
        f"Schreibe die Antwort.\nKunde: {letter(i)}\nBerater: {reply(i)}\nAntwort:"
    ),
}
COPIES = {
    "before the reply": lambda i: f"Write the next reply.\n\nCustomer: {letter(i)}\n\nReply:",
    "extraction": lambda i: (
        f"Extract the support team's message.\n{letter(i)}\n{reply(i)}\nMessage:"
    ),
    "choice": lambda i: f"Choose the best reply.\n{letter(i)}\n{reply(i)}\nCall us.\nChoice:",
    "part of a paragraph": lambda i: (
        f"Say what matters.\n{letter(i)} {reply(i)} Regards, Ida\nAnswer:"
    ),
    "correction": lambda i: f"Correct the spelling.\n{reply(i)}\nCorrected:",
    "some rows": lambda i: f"Go on.\n{letter(i)}\n{reply(i) if i % 3 else 'Hm.'}\nReply:",
}


def is_found(rows: list[dict[str, str]], folder: Path) -> bool:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = CliRunner().invoke(truetune_group, ["check", str(path)]).stdout
    return "error[ROW028]" in output


@pytest.mark.parametrize("form", LEAKS)
def test_replies_in_their_own_thread_are_found(form: str, tmp_path: Path) -> None:
    rows = [{"prompt": LEAKS[form](i), "completion": reply(i)} for i in range(40)]
    assert is_found(rows, tmp_path)


@pytest.mark.parametrize("form", COPIES)
def test_answers_that_are_rightly_copied_are_left_alone(form: str, tmp_path: Path) -> None:
    rows = [{"prompt": COPIES[form](i), "completion": reply(i)} for i in range(40)]
    assert not is_found(rows, tmp_path)
