"""Causes that the files or the user's own words make impossible stand behind the others."""

# ruff: noqa: E501 - files and logs stand as they are written
from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.explaining.recognise_project_traits_behind_causes import (
    Trait,
    traits_shown_by_line,
    traits_switched_off_by_line,
)
from truetune.troubleshooting.find_traits_shown_by_project_lines import read_facts_of_project
from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.rank_causes import choose_guides

FAILURE = 'Traceback (most recent call last):\n  File "/site/m.py", line 4, in {}\n    x()\ntorch.OutOfMemoryError: CUDA out of memory.\n'


def outside(text: str, question: str = "out of memory") -> frozenset[Trait]:
    """The phases in which the memory of a log did not run out."""
    return read_facts_of_project(
        question, [ProjectText(Path("run.log"), text, True)]
    ).outside_failure


@pytest.mark.parametrize(
    "line", ["val_set_size: 0.0", "val_size: 0", 'eval_strategy: "no"', "eval_strategy='no',"]
)
def test_what_is_switched_off_is_not_shown(line: str) -> None:
    assert Trait.EVALUATION in set(traits_switched_off_by_line(line))
    assert Trait.EVALUATION not in set(traits_shown_by_line(line))


@pytest.mark.parametrize(
    "line", ["val_set_size: 0.05", "val_size: 0.1", "eval_strategy: epoch", "eval_steps: 0.1"]
)
def test_what_is_on_is_shown(line: str) -> None:
    assert Trait.EVALUATION in set(traits_shown_by_line(line))


def test_reentrant_checkpoints_are_there_unless_they_are_switched_off() -> None:
    off = read_facts_of_project(
        "x", [ProjectText(Path("a.yml"), "kwargs:\n  use_reentrant: false\n", True)]
    )
    silent = read_facts_of_project("x", [ProjectText(Path("a.yml"), "adapter: lora\n", True)])
    assert Trait.REENTRANT not in off.traits_shown_by_project | off.traits_files_could_not_show
    assert Trait.REENTRANT in silent.traits_files_could_not_show


def test_the_phase_of_a_failure_excludes_others() -> None:
    assert {Trait.MERGE, Trait.EVALUATION} <= outside(FAILURE.format("training_step"))
    assert Trait.MERGE in outside(FAILURE.format("from_pretrained"))
    assert Trait.MERGE not in outside(FAILURE.format("merge_and_unload"))
    assert Trait.EVALUATION not in outside(FAILURE.format("evaluation_loop"))
    assert Trait.EVALUATION not in outside("{'eval_loss': 1}\n" + FAILURE.format("training_step"))
    assert Trait.MERGE not in outside(FAILURE.format("f"), "out of memory in a merge")
    assert not outside("Traceback (most recent call last):\nValueError: x\n")


@pytest.mark.parametrize(
    "question",
    [
        "loss goes down to 0.15 but it answers something else",
        "the training loss falls nicely but the answers are wrong",
        "loss dropped to 0.2, answers are about another topic",
        "train loss is low but answers are useless",
        "loss decreases as it should, but the model learned nothing",
    ],
)
def test_a_loss_that_falls_is_none_that_does_not(question: str) -> None:
    assert "loss-does-not-fall" not in [guide.name for guide, _ in choose_guides(question)]


@pytest.mark.parametrize(
    "question",
    [
        "the loss does not go down",
        "loss falls at first, then stays at 2.3",
        "my loss never drops",
        "the loss is flat",
        "the loss hardly drops",
    ],
)
def test_a_loss_that_does_not_fall_is_one(question: str) -> None:
    assert "loss-does-not-fall" in [guide.name for guide, _ in choose_guides(question)]


SPEEDS = {"slow-generation", "slow-training", "several-gpus"}


@pytest.mark.parametrize(
    "question",
    [
        "the model returns only empty answers, just pad tokens, on the T4, in the notebook it was fine",
        "all replies are blank since it runs on the server",
        "nothing but <pad> comes out on the V100",
        "empty outputs on two GPUs",
    ],
)
def test_what_answers_hold_is_no_matter_of_speed(question: str) -> None:
    assert SPEEDS.isdisjoint(guide.name for guide, _ in choose_guides(question))


@pytest.mark.parametrize(
    "question",
    [
        "generation takes 40 seconds per answer, and half of the answers are empty",
        "only 2 tokens a second on the T4, in the notebook it was fine",
    ],
)
def test_a_speed_that_is_named_is_one(question: str) -> None:
    assert not SPEEDS.isdisjoint(guide.name for guide, _ in choose_guides(question))
