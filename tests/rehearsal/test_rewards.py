"""Trainings by rewards in miniature: a sound trainer raises what it is paid for, and each broken one is told apart.

Each case trains a model of two layers for 60 steps, some of them by sampling: 2 to 4 s of processor time, and nothing
shorter shows a reward that rises. A mask that is empty is the example of the rule's page.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl", minversion="1.16")

from trl import GRPOTrainer

from tests.auditing import tiny
from tests.auditing.tiny_rollouts import grpo
from truetune.rehearsal.rehearsal_report import RehearsalReport, judge_rehearsal
from truetune.rehearsal.rehearse_in_process import record_rehearsal
from truetune.report.report_terminal import report_as_text

RULE = "reward-does-not-rise-in-miniature"


def correct(completions: Any, answer: Any, **_: Any) -> list[float]:
    """Right where the number is."""
    return [
        float(one[0]["content"].strip() == right)
        for one, right in zip(completions, answer, strict=True)
    ]


def constant(completions: Any, **_: Any) -> list[float]:
    """The same for all."""
    return [0.5] * len(completions)


class Stale(GRPOTrainer):
    """Samples with the weights that it began with."""

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        now = {name: value.clone() for name, value in self.model.state_dict().items()}
        if not hasattr(self, "first_weights"):
            self.first_weights = now
        self.model.load_state_dict(self.first_weights)
        try:
            return super()._generate_single_turn(*args, **kwargs)
        finally:
            self.model.load_state_dict(now)


class Turned(GRPOTrainer):
    """Descends where it should ascend."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        return -super()._compute_loss(model, inputs)


@cache
def rehearsed(kind: Any = None, reward: Any = correct) -> RehearsalReport:
    model = tiny.model(hidden_size=64)
    model.generation_config.eos_token_id = tiny.tokenizer().eos_token_id
    trainer = grpo(kind, reward=reward, model=model)
    before = dict(vars(trainer)), dict(vars(trainer.args))
    record = record_rehearsal(trainer, laws="none")
    # All that was set for the trial is as it was.
    after = dict(vars(trainer)), dict(vars(trainer.args))
    for own, then in zip(before, after, strict=True):
        changed = {name for name in own if own[name] is not then.get(name, own)}
        assert changed <= {"_metrics", "_logs", "first_weights", "callback_handler"}, changed
        assert own.keys() >= then.keys() - {"first_weights", "_last_loaded_step"}
    return judge_rehearsal([record])


def found(report: RehearsalReport) -> list[tuple[str, str]]:
    return [(one.severity, one.message) for one in report.findings if one.rule == RULE]


def test_a_sound_trainer_learns_both() -> None:
    report = rehearsed()
    assert found(report) == []
    assert any(one.rule == RULE for one in report.examined)
    own, learned = report.rewards["own"], report.rewards["learned"]
    assert (own["right"], own["wrong"], own["form"]) == (1.0, 0.0, "X")
    assert all(after > before for before, after in own["margins"])
    assert learned["policy"][-1] > 0.6
    text = report_as_text(report)
    assert "own reward: right answers get 1, wrong ones 0 (as X)" in text
    assert "a reward that can be learned: from " in text


def test_a_sampler_with_old_weights_is_told_from_a_loss_that_teaches_nothing() -> None:
    ((severity, message),) = found(rehearsed(Stale))
    assert severity == "error"
    assert message.startswith("the policy learns, and the sampled answers stay as they were")


def test_a_loss_of_the_opposite_sign_makes_paid_answers_less_likely() -> None:
    ((severity, message),) = found(rehearsed(Turned))
    assert severity == "error"
    assert message.startswith("training makes the rewarded answers less likely")


def test_a_constant_reward_is_the_functions_own_fault() -> None:
    report = rehearsed(None, constant)
    ((severity, message),) = found(report)
    assert severity == "warning"
    assert message.startswith("the run's reward functions give 0.5 to each of 56 answers")
    # The trainer itself is sound: it learns what it is paid for.
    assert report.rewards["learned"]["policy"][-1] > 0.6
