"""Symptoms are recognised by what other users say of them."""

from __future__ import annotations

from collections import Counter

import pytest

from truetune.checks.explaining.guides import GUIDES
from truetune.checks.explaining.recognise_symptom import (
    count_words_of_sentences,
    read_symptom_sentences,
    symptom_probabilities,
)
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


# Written before the sentences of the table on rewards and agents, and in no other words than came to mind.
ON_REWARDS = (
    ("my GRPO run has been at reward 0.1 for 600 steps", "reward-does-not-rise"),
    ("advantages are all zero in my rloo run", "reward-does-not-rise"),
    ("frac_reward_zero_std is 1.0 from the start", "reward-does-not-rise"),
    ("critic/rewards/mean stays flat in verl", "reward-does-not-rise"),
    ("the reward curve just oscillates around the same value and never goes up", "reward-does-not-rise"),
    ("correctness reward is always 0 although the printed completions are right", "reward-does-not-rise"),
    ("grpo grad_norm is 0 and nothing is learned", "reward-does-not-rise"),
    ("every completion gets the same score", "reward-does-not-rise"),
    ("mean reward climbs to 0.95 but gsm8k accuracy went down", "reward-rises-model-is-worse"),
    ("the policy hacks the reward function", "reward-rises-model-is-worse"),
    ("after GRPO the model writes very long repetitive answers that score high", "reward-rises-model-is-worse"),
    ("training reward is nearly perfect and the benchmark is below the base model", "reward-rises-model-is-worse"),
    ("format reward is 1.0 and the model no longer solves the problems", "reward-rises-model-is-worse"),
    ("the policy found out that empty answer tags are paid", "reward-rises-model-is-worse"),
    ("my multi-turn agent stops calling the search tool after 100 steps of RL", "agent-training"),
    ("tool outputs seem to be trained on in my agent loop", "agent-training"),
    ("token ids of the trajectory differ after re-tokenization between turns", "agent-training"),
    ("the agent makes up the tool response itself instead of calling the tool", "agent-training"),
    ("observation tokens are in the policy loss", "agent-training"),
    ("vllm logprobs and trainer logprobs drift apart with the number of turns", "agent-training"),
)  # fmt: skip
RL_GUIDES = frozenset(guide for _, guide in ON_REWARDS)


def test_each_sentence_is_of_a_guide() -> None:
    """A symptom without a guide would take the share of those that have one."""
    pairs = read_symptom_sentences()
    assert all(sentence.strip() for _, sentence in pairs)
    assert {symptom for symptom, _ in pairs} <= {guide.name for guide in GUIDES}
    # A symptom with fewer sentences is likelier for each word that it does not have.
    assert len(set(Counter(symptom for symptom, _ in pairs).values())) == 1


def test_sentences_that_were_left_out_are_recognised_by_the_others() -> None:
    """Five-fold cross-validation: 64 % are right by the sentences alone, and 76 % of those on rewards and agents."""
    folds = _fold_numbers(read_symptom_sentences())
    right, on_rewards = [], []
    for fold in range(5):
        counts = count_words_of_sentences(pair for pair, number in folds if number != fold)
        for (symptom, sentence), number in folds:
            if number != fold:
                continue
            chances = symptom_probabilities(sentence, counts)
            is_right = bool(chances) and max(chances, key=lambda name: chances[name]) == symptom
            right.append(is_right)
            if symptom in RL_GUIDES:
                on_rewards.append(is_right)
    assert sum(right) / len(right) > 0.6
    assert sum(on_rewards) / len(on_rewards) > 0.7


def _fold_numbers(pairs: list[tuple[str, str]]) -> list[tuple[tuple[str, str], int]]:
    """Each sentence with its fold, 0 to 4: every fifth of each symptom."""
    counted: Counter[str] = Counter()
    folds = []
    for pair in pairs:
        folds.append((pair, counted[pair[0]] % 5))
        counted[pair[0]] += 1
    return folds


def test_words_on_rewards_and_agents_lead_to_their_guides() -> None:
    """19 of 20: the one on a benchmark below the base is taken for one on odd metrics."""
    chosen = {question: choose_guides(question) for question, _ in ON_REWARDS}
    first = [chosen[question][0][0].name == guide for question, guide in ON_REWARDS]
    assert sum(first) >= 18


@pytest.mark.parametrize(
    "question",
    [
        "the model produces garbage",
        "the loss falls but the phone agent talks as if it were the caller",
        "the tuned model gives garbage",
    ],
)
def test_who_names_no_reward_is_not_led_to_a_guide_on_rewards(question: str) -> None:
    assert RL_GUIDES.isdisjoint(guide.name for guide, _ in choose_guides(question))


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
