"""The table of messages: each is recognised as it is printed, by no other, and leads to something that runs."""

from __future__ import annotations

import re

import pytest

from tests.logs.console.examples import EXAMPLES
from truetune.cli import truetune_group
from truetune.logs.console.messages import (
    MESSAGES,
    KnownMessage,
    known_message_of_exception,
    known_message_of_line,
    message_by_name,
)
from truetune.logs.console.strip_line_prefixes import strip_codes_and_prefixes

CASES = [(name, text) for name, texts in EXAMPLES.items() for text in texts]


@pytest.mark.parametrize(
    ("name", "text"), CASES, ids=[f"{name}-{text[:30]}" for name, text in CASES]
)
def test_a_message_is_recognised(name: str, text: str) -> None:
    message = message_by_name(name)
    assert message is not None
    line = strip_codes_and_prefixes(text, 1).text.strip()
    found = (
        known_message_of_exception(text)
        if message.shown == "exception"
        else known_message_of_line(line)
    )
    assert found is message


def test_every_message_has_an_example_and_a_name_of_its_own() -> None:
    assert len(MESSAGES) >= 60
    assert [message.name for message in MESSAGES if message.name not in EXAMPLES] == []
    assert len({message.name for message in MESSAGES}) == len(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_a_message_says_why_what_next_and_where_from(message: KnownMessage) -> None:
    assert message.cause
    assert message.sources
    for command in re.findall(r"`truetune ([^`]+)`", message.advice):
        words = command.split()
        assert words[0] in truetune_group.commands, command
        known = {
            name for option in truetune_group.commands[words[0]].params for name in option.opts
        }
        own = words[1 : words.index("--")] if "--" in words else words[1:]
        assert {word for word in own if word.startswith("-")} <= known, command


@pytest.mark.parametrize(
    "text",
    [
        "question: how do I solve CUDA out of memory. Tried to allocate 2 GiB?",
        '{"prompt": "IndexError: index out of range in self", "answer": "the ids are too large"}',
        "He was Killed in action, the letter said.",
        (
            'Answer: the message "Token indices sequence length is longer than the specified'
            ' maximum" is harmless'
        ),
        "labels: None of the inputs have requires_grad=True",
        "The exit code is 1 where a finding is at or above error.",
    ],
)
def test_words_inside_a_line_are_no_message(text: str) -> None:
    assert known_message_of_line(strip_codes_and_prefixes(text, 1).text.strip()) is None


@pytest.mark.parametrize(
    "line",
    [
        "load_tensors: offloaded 33/33 layers to GPU",
        "Device set to use cuda:0",
        "Model loaded on cuda:0",
        "loaded optimizer state on cpu",
        "Loaded 4,000 rows on cpu memory",
        'time=2026-10-02T10:11:40 level=INFO source=types.go:131 msg="inference compute" id=GPU-1 library=cuda',
    ],
)
def test_a_model_that_is_whole_on_the_gpu_is_no_message(line: str) -> None:
    assert known_message_of_line(strip_codes_and_prefixes(line, 1).text.strip()) is None


def test_a_shared_segment_that_may_not_be_made_is_no_full_memory() -> None:
    text = "Error while creating shared memory segment /dev/shm/nccl-x (size 9), error: Permission denied (13)"
    assert known_message_of_exception(text) is None
