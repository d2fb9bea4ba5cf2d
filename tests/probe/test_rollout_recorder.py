"""The recorder of rollouts: a training with it is the training without it, and it leaves nothing behind."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import pytest
import transformers

from tests.auditing.tiny_rollouts import grpo, length_reward
from truetune.probe.record_rollouts_of_trl_trainer import RolloutRecorder, can_record_rollouts
from truetune.probe.rollout_step import read_rollout_files, write_rollout_files

SETTINGS: dict[str, Any] = {"num_iterations": 2, "max_steps": 3, "learning_rate": 1e-2}


def _trained(recorder: Any = None, trainer: Any = None) -> tuple[Any, list[Any]]:
    """A trained trainer's weights and log, without times."""
    trainer = trainer or grpo(**SETTINGS)
    if recorder is not None:
        recorder(trainer)
    trainer.train()
    log = [
        {key: value for key, value in line.items() if "time" not in key and "per_second" not in key}
        for line in trainer.state.log_history
    ]
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}, log


def _same_weights(left: Any, right: Any) -> bool:
    return all(bool((left[name] == right[name]).all()) for name in left)


@pytest.fixture(scope="module")
def alone() -> tuple[Any, list[Any]]:
    return _trained()


def test_a_recorded_training_is_the_same_and_nothing_stays(alone: Any) -> None:
    trainer = grpo(**SETTINGS)
    before, generate = dict(vars(trainer)), transformers.GenerationMixin.generate
    failures: list[str] = []
    recorder = RolloutRecorder(trainer, 8, lose=failures.append)
    recorder.start()
    assert transformers.GenerationMixin.generate is not generate
    weights, log = _trained(trainer=trainer)
    assert not failures
    assert log == alone[1]
    assert _same_weights(weights, alone[0])
    # It has stopped by itself, after both uses of the first generation and one of the second.
    assert recorder.over
    assert [len(step.passes) for step in recorder.take()] == [2, 1]
    assert transformers.GenerationMixin.generate is generate
    assert not [name for name in set(vars(trainer)) - set(before) if callable(vars(trainer)[name])]
    assert trainer.reward_funcs == [length_reward]


@pytest.mark.parametrize(
    "note", ["_note_generate", "_note_generation", "_note_loss", "_note_end_of_pass"]
)
def test_a_note_that_fails_ends_the_recording_alone(note: str, alone: Any) -> None:
    failures: list[str] = []
    made: list[RolloutRecorder] = []

    def fail(*_: Any) -> None:
        raise ArithmeticError("a fault of ours")

    def begin(trainer: Any) -> None:
        made.append(RolloutRecorder(trainer, 8, lose=failures.append))
        setattr(made[0], note, fail)
        made[0].start()

    weights, log = _trained(begin)
    assert failures == ["ArithmeticError: a fault of ours"]
    assert made[0].over
    assert log == alone[1]
    assert _same_weights(weights, alone[0])


def _broken_reward(completions: Any, **_: Any) -> list[float]:
    raise LookupError("the user's own")


def test_an_exception_of_the_program_passes_without_a_frame_of_ours() -> None:
    trainer = grpo(reward=_broken_reward)
    recorder = RolloutRecorder(trainer, 8, lose=lambda reason: None)
    recorder.start()
    with pytest.raises(LookupError, match="the user's own") as caught:
        trainer.train()
    recorder.stop()
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert not [name for name in files if name.endswith("record_rollouts_of_trl_trainer.py")]


def _sorting_reward(completions: Any, answer: list[str], **_: Any) -> list[float]:
    answer.sort(reverse=True)
    return [float(len(one[0]["content"])) for one in completions]


def test_columns_are_those_that_a_reward_function_is_given() -> None:
    """Not those that it leaves behind."""
    trainer = grpo(reward=_sorting_reward, max_steps=1)
    recorder = RolloutRecorder(trainer, 1, lose=lambda reason: None)
    recorder.start()
    trainer.train()
    (step,) = recorder.take()
    (call,) = step.reward_calls
    assert step.columns is not None
    assert call.columns == step.columns
    assert len(set(call.columns["answer"])) == 2


def test_only_trainers_with_rollouts_are_recorded() -> None:
    assert not can_record_rollouts(object())
    assert not can_record_rollouts(transformers.Trainer)


def test_steps_are_read_as_they_were_written(tmp_path: Any) -> None:
    trainer = grpo(beta=0.1)
    recorder = RolloutRecorder(trainer, 8, lose=lambda reason: None)
    recorder.start()
    trainer.train()
    steps = recorder.take()
    write_rollout_files(steps, tmp_path)
    read = read_rollout_files(tmp_path)
    assert len(read) == len(steps) == 2
    for one, other in zip(steps, read, strict=True):
        assert one.settings == other.settings
        assert one.sampled_ids == other.sampled_ids
        assert one.prompts == other.prompts
        assert one.columns == other.columns
        assert [call.values for call in one.reward_calls] == [
            call.values for call in other.reward_calls
        ]
        assert np.array_equal(one.completion_ids, other.completion_ids)
        left, right = one.passes[0].logp_gradient, other.passes[0].logp_gradient
        assert left is not None
        assert right is not None
        assert np.array_equal(left, right)
    assert read_rollout_files(tmp_path / "none") == ()
