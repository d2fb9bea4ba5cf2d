"""Which other form advantages and losses have, told from one real rollout that is changed where the fault would be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import truetune
from tests.auditing.tiny_rollouts import grpo, rollouts_of
from truetune.checks.rollout.evidence.advantages_by_settings import expected_advantages
from truetune.checks.rollout.evidence.loss_gradient_by_settings import expected_gradient
from truetune.probe.rollout_step import LossPass, RolloutStep

Change = Callable[[RolloutStep], RolloutStep]


@cache
def recorded() -> RolloutStep:
    """One generation of TRL's trainer with a KL term, used twice: the policy moves in between."""
    trainer = grpo(
        loss_type="grpo", beta=0.1, num_iterations=2, max_steps=2, learning_rate=1e-2, gradient_accumulation_steps=2,
    )  # fmt: skip
    (step, *_) = rollouts_of(trainer)
    return step


def findings(step: RolloutStep, rule: str) -> list[Any]:
    """What one rule finds in a step."""
    return list(truetune.audit_rollout(step, select=[rule]).findings)


def with_gradients(change: Callable[[LossPass], Any]) -> RolloutStep:
    """The step with other gradients of its losses."""
    step = recorded()
    return replace(
        step, passes=tuple(replace(one, logp_gradient=change(one)) for one in step.passes)
    )


def under(**settings: Any) -> RolloutStep:
    """The step with the gradients that it would have under other settings."""
    other = replace(recorded(), settings=replace(recorded().settings, **settings))
    return with_gradients(lambda one: expected_gradient(other, one))


LOSS = "loss-weighs-tokens-otherwise"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: with_gradients(lambda one: -np.asarray(one.logp_gradient)), "opposite sign: rewarded answers"),
        (lambda: under(beta=0.0), "the KL term is not in it"),
        (lambda: under(beta=-0.1), "the KL term has the opposite sign"),
        (lambda: under(loss_type="bnpo"), "loss_type='bnpo'"),
        (lambda: under(loss_type="dr_grpo"), "loss_type='dr_grpo'"),
        (lambda: under(loss_type="dapo"), "loss_type='dapo'"),
        (lambda: with_gradients(lambda one: np.asarray(one.logp_gradient) / 2), "micro-batches of a step twice"),
        (lambda: with_gradients(lambda one: np.asarray(one.logp_gradient) * 2), "not divided by the 2 micro-batches"),
        (lambda: with_gradients(lambda one: np.asarray(one.logp_gradient) * 3), "counts 3 times what it should"),
    ],
)  # fmt: skip
def test_the_form_of_a_loss_is_named(make: Callable[[], RolloutStep], words: str) -> None:
    (found,) = findings(make(), LOSS)
    assert words in found.message


def test_a_loss_of_no_known_form_is_found_and_not_named() -> None:
    noise = np.random.default_rng(0)
    step = with_gradients(
        lambda one: np.asarray(one.logp_gradient) * noise.uniform(0.5, 2.0, one.logps.shape)
    )
    (found,) = findings(step, LOSS)
    assert found.message.endswith("the other settings say")


def test_tokens_outside_the_mask_that_count_are_told() -> None:
    step = with_gradients(lambda one: np.where(one.in_loss, np.asarray(one.logp_gradient), 0.1))
    (found,) = findings(step, LOSS)
    outside = sum(int((~one.in_loss).sum()) for one in step.passes)
    assert outside > 0
    assert found.evidence == (f"{outside:,} tokens count that are not meant to be in the loss",)


def test_the_recorded_loss_is_fine() -> None:
    assert findings(recorded(), LOSS) == []
    assert len(recorded().passes) == 4
    # The second use has other ratios than 1, or the comparison would say little.
    assert recorded().passes[-1].optimizer_step > recorded().optimizer_step


ADVANTAGES = "advantages-are-not-of-their-rewards"


def with_advantages(change: Callable[[Any], Any]) -> RolloutStep:
    """The step with other advantages than those of its rewards."""
    expected = expected_advantages(recorded())
    assert expected is not None
    return replace(recorded(), advantages=change(expected))


def by(**settings: Any) -> RolloutStep:
    """The step with the advantages that it would have under other settings."""
    values = expected_advantages(
        replace(recorded(), settings=replace(recorded().settings, **settings))
    )
    assert values is not None
    return replace(recorded(), advantages=values)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: with_advantages(lambda values: -values), "they have the opposite sign"),
        (lambda: by(scale_rewards="none"), "nothing divides them"),
        (lambda: by(scale_rewards="batch"), "the spread of the whole batch"),
        (lambda: by(baseline="leave-one-out"), "the mean of the others"),
        (lambda: by(num_generations=16), "the mean of the whole batch is subtracted"),
        (lambda: replace(recorded(), advantages=np.asarray(recorded().rewards)[:, 0]), "nothing is subtracted"),
    ],
)  # fmt: skip
def test_the_form_of_advantages_is_named(make: Callable[[], RolloutStep], words: str) -> None:
    (found,) = findings(make(), ADVANTAGES)
    assert words in found.message


def test_groups_of_rows_that_stand_apart_are_named() -> None:
    step = recorded()
    assert step.rewards is not None
    order = np.arange(16).reshape(4, 4).T.ravel()
    moved = expected_advantages(replace(step, rewards=step.rewards[order]))
    assert moved is not None
    (found,) = findings(replace(step, advantages=moved[np.argsort(order)]), ADVANTAGES)
    assert "are apart (row 1 with row 5" in found.message
