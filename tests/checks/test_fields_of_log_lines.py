"""A program before its message in a log is no field of the prompt that tells the answer."""

from __future__ import annotations

import pytest

from truetune.checks.prompt_fields_telling_answers import (
    find_fields_telling_answers,
    split_prompt_fields,
)

MESSAGES = {
    "disk": "EXT4-fs error on sda in block {number}",
    "network": "link of eth0 is down since {number} s",
    "memory": "Out of memory, killed process {number} of user app",
}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Oct  7 19:51:22 srv-775-c kernel: TCP: out of memory", "kernel"),
        ("2025-10-14T21:04:07Z api-1 nginx[22]: upstream timed out", "nginx"),
        ("2025-10-14 21:04:07,787 ERROR worker: lost connection to db", "worker"),
        ("2025/10/14 21:04:07 db-2 systemd: unit failed at once", "systemd"),
        ("Oct 17 19:51:22 srv sshd: session closed for user root", "sshd"),
    ],
)
def test_a_program_in_a_log_is_no_field(line: str, name: str) -> None:
    assert f"the field {name!r}" not in split_prompt_fields(line)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Oct  7 19:51:22 srv kernel: dev=sda1 error on disk", "dev"),
        ("[2025-10-14 21:04:07] Group: FIN-BILLING", "Group"),
        ("Oct  7 19:51:22 Queue: network", "Queue"),
        ("2025-10-14 Group: FIN-BILLING please help me", "Group"),
        ("Group: FIN-BILLING and more", "Group"),
    ],
)
def test_pairs_beside_a_time_are_fields(line: str, name: str) -> None:
    assert f"the field {name!r}" in split_prompt_fields(line)


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def word(number: int) -> str:
    """A word that no other row has: of rows that differ in numbers alone nothing is told."""
    return LETTERS[number % 26] + LETTERS[number // 26] * 3


def rows(head: str) -> tuple[list[str], list[str]]:
    """Excerpts of a log, each with its label; the head may hold the label."""
    prompts, answers = [], []
    for number in range(90):
        label = list(MESSAGES)[number % 3]
        noise = f"Oct  7 19:50:{number % 60:02} srv-{number} cron[{number}]: job {word(number)} of user app done"
        message = (f"Oct  7 19:51:{number % 60:02} srv-{number} kernel: {MESSAGES[label]}").format(
            number=number
        )
        prompts.append(head.format(label=label) + f"{noise}\n{message}\nWhat is it?")
        answers.append(label)
    return prompts, answers


def test_messages_are_the_evidence_and_a_label_is_a_leak() -> None:
    assert find_fields_telling_answers(*rows("")) == []
    (leak, *_) = find_fields_telling_answers(*rows("Oct  7 19:49:01 srv queue={label} opened\n"))
    assert "queue" in leak.name
