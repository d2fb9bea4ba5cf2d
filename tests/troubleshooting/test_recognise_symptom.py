"""Symptoms are recognised by what other users say of them."""

from __future__ import annotations

from importlib.resources import files

import pytest

from truetune.checks.explaining.guides import GUIDES
from truetune.checks.explaining.recognise_symptom import SENTENCES, symptom_probabilities
from truetune.troubleshooting.rank_causes import MAX_GUIDES, choose_guides

SAID = (
    ("training crawls on this card, I expected far more iterations", "slow-training"),
    ("each epoch is super slow and the gpu is idle", "slow-training"),
    ("the job is killed while the shards load", "out-of-memory"),
    ("ranks hang at the first barrier", "several-gpus"),
    ("rewards margins do not move", "dpo-without-effect"),
    ("the benchmark score is the same for every checkpoint", "odd-metrics"),
)


@pytest.mark.parametrize(("question", "symptom"), SAID)
def test_the_likeliest_symptom_is_that_of_the_words(question: str, symptom: str) -> None:
    chances = symptom_probabilities(question)
    assert max(chances, key=lambda name: chances[name]) == symptom
    assert sum(chances.values()) == pytest.approx(1.0)
    assert choose_guides(question)[0][0].name == symptom


@pytest.mark.parametrize("question", ["", "qqxzv", "the and of", "ドイツ語"])
def test_words_that_nobody_says_recognise_nothing(question: str) -> None:
    assert symptom_probabilities(question) == {}
    assert len(choose_guides(question)) == len(GUIDES)


def test_few_guides_are_kept_and_the_best_comes_first() -> None:
    chosen = choose_guides("evaluation loss is odd, slow steps, out of memory on two gpus")
    shares = [share for _, share in chosen]
    assert 1 <= len(chosen) <= MAX_GUIDES
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0


def test_each_sentence_is_of_a_guide() -> None:
    """A symptom without a guide would take the share of those that have one."""
    text = files("truetune.checks.explaining").joinpath(SENTENCES).read_text(encoding="utf-8")
    lines = [line.split("\t") for line in text.splitlines()]
    assert all(len(parts) == 2 and parts[1].strip() for parts in lines)
    assert {parts[0] for parts in lines} <= {guide.name for guide in GUIDES}


@pytest.mark.parametrize(
    ("question", "guides"),
    [
        (
            "training takes 105 s per step and generation only 2 tokens a second",
            {"slow-training", "slow-generation"},
        ),
        ("the tuned model writes 3 tokens per second in ollama, the base 45", {"slow-generation"}),
        ("my model only writes 4 tok/s", {"slow-generation"}),
        ("inference went from 40 t/s to 5 t/s with the adapter", {"slow-generation"}),
        ("40 seconds for each answer, the base needs 3", {"slow-generation"}),
        ("every request takes almost 90 s", {"slow-generation"}),
        ("each step takes 100 seconds", {"slow-training"}),
        ("35 s/it for a 7B on an A100", {"slow-training"}),
        ("0.2 samples per second", {"slow-training"}),
        ("an epoch takes 14 hours", {"slow-training"}),
    ],
)
def test_a_named_speed_leads_to_the_guides_on_speed(question: str, guides: set[str]) -> None:
    chosen = choose_guides(question)
    assert {guide.name for guide, share in chosen if share == 1.0} == guides
    assert {guide.name for guide, _ in chosen} <= {
        "slow-training",
        "slow-generation",
        "several-gpus",
    }


@pytest.mark.parametrize(
    ("question", "guide"),
    [
        ("CUDA out of memory after 40 s per step", "out-of-memory"),
        ("the model writes 300 tokens of nonsense and never stops", "garbage-output"),
        ("10 tokens of garbage in each answer", "garbage-output"),
        ("the loss is nan after 3 steps a minute", "nan-loss"),
    ],
)
def test_figures_beside_another_fault_name_no_speed(question: str, guide: str) -> None:
    names = [one.name for one, _ in choose_guides(question)]
    assert not set(names) <= {"slow-training", "slow-generation", "several-gpus"}
    assert guide in names or guide not in {one.name for one in GUIDES}
