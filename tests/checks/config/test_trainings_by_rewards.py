"""Groups of answers, checkpoints and KL terms of trainings by rewards, and schedules that rise again."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.config.settings import TRL, VERL
from truetune.checks.config.dataset_listed_twice_or_also_evaluated import (
    DatasetListedTwiceOrAlsoEvaluated,
)
from truetune.checks.config.grouped_answers_cannot_differ import GroupedAnswersCannotDiffer
from truetune.checks.config.schedule_ends_at_a_high_rate import ScheduleEndsAtAHighRate
from truetune.checks.config.setting_overruled import SettingOverruled
from truetune.checks.config.trained_weights_not_saved import TrainedWeightsNotSaved
from truetune.checks.rule import ConfigRule
from truetune.settings.stacks.read_config_of_any_stack import read_config

NEMO_RL: dict[str, Any] = {
    "grpo": {"num_prompts_per_step": 32, "num_generations_per_prompt": 16},
    "policy": {"model_name": "some/model", "generation": {"backend": "vllm", "temperature": 1.0}},
    "checkpointing": {"enabled": True},
}
TORCHTUNE: dict[str, Any] = {
    "model": {"_component_": "torchtune.models.llama3_2.llama3_2_1b"},
    "optimizer": {"_component_": "torch.optim.AdamW", "lr": 2e-5},
    "epochs": 1,
}


def _changed(settings: dict[str, Any], **changes: object) -> dict[str, Any]:
    """Settings with some of them changed: `actor_rollout_ref__rollout__n=1`; None takes one out."""
    copy = deepcopy(settings)
    for name, value in changes.items():
        *tables, last = name.split("__")
        table = copy
        for key in tables:
            table = table.setdefault(key, {})
        if value is None:
            table.pop(last, None)
        else:
            table[last] = value
    return copy


def _messages(rule: type[ConfigRule], settings: dict[str, Any], folder: Path) -> list[str]:
    """What a rule says of settings, with the severity."""
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    judged = rule(read_config(path))
    if judged.unmet() is not None:
        return []
    return [f"{found.severity}: {found.message}" for found in judged.findings()]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (VERL, ""),
        (_changed(VERL, actor_rollout_ref__rollout__n=1), "rollout.n is 1"),
        (_changed(VERL, actor_rollout_ref__rollout__n=None), "rollout.n is 1"),
        # A program on verl with tables of its own makes its groups by a setting of its own.
        (_changed(VERL, actor_rollout_ref__rollout__n=None, env={"rollout": {"n": 8}}), ""),
        (_changed(VERL, actor_rollout_ref__rollout__n=1, algorithm__adv_estimator="gae"), ""),
        (_changed(VERL, actor_rollout_ref__rollout__n=1, algorithm__adv_estimator="remax"), ""),
        (_changed(VERL, actor_rollout_ref__rollout__n="${n}"), ""),
        (_changed(VERL, actor_rollout_ref__rollout__temperature=0), "rollout.temperature is 0"),
        (_changed(VERL, actor_rollout_ref__rollout__top_k=1), "rollout.top_k is 1"),
        (_changed(VERL, actor_rollout_ref__rollout__top_k=-1), ""),
        (_changed(VERL, actor_rollout_ref__rollout__val_kwargs={"n": 8}), "val_kwargs.n is 8"),
        (
            _changed(VERL, actor_rollout_ref__rollout__val_kwargs={"n": 8, "temperature": 0.6}),
            "",
        ),
        (NEMO_RL, ""),
        (_changed(NEMO_RL, grpo__num_generations_per_prompt=1), "num_generations_per_prompt is 1"),
        (_changed(NEMO_RL, policy__generation__temperature=0.0), "temperature is 0"),
        # Advantages from a teacher's probabilities compare no answers.
        (
            _changed(
                NEMO_RL, grpo__num_generations_per_prompt=1, grpo__adv_estimator={"name": "opd"}
            ),
            "",
        ),
        # A file that changes another one leaves the rest to it.
        (_changed(NEMO_RL, defaults="base.yaml", grpo__num_generations_per_prompt=None), ""),
    ],
)
def test_answers_that_cannot_differ(
    settings: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    found = _messages(GroupedAnswersCannotDiffer, settings, tmp_path)
    assert [expected in message for message in found] == [True] * bool(expected)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (VERL, ""),
        # Verl's own examples write it where only the curves are wanted.
        (_changed(VERL, trainer__save_freq=-1), "info: trainer.save_freq is -1:"),
        (_changed(VERL, trainer__save_freq=None), "warning: trainer.save_freq is -1 by default"),
        (
            _changed(VERL, trainer__save_freq=-1, trainer__default_local_dir="outputs/grpo"),
            "warning: trainer.save_freq is -1:",
        ),
        (
            _changed(VERL, trainer__save_freq=-1, trainer__max_actor_ckpt_to_keep=2),
            "warning: trainer.save_freq is -1:",
        ),
        (_changed(VERL, trainer__save_freq=-1, trainer__val_only=True), ""),
        (NEMO_RL, ""),
        (_changed(NEMO_RL, checkpointing__enabled=False), "info: checkpointing.enabled is false"),
    ],
)
def test_runs_that_save_nothing(settings: dict[str, Any], key: str, tmp_path: Path) -> None:
    found = _messages(TrainedWeightsNotSaved, settings, tmp_path)
    assert [key in message for message in found] == [True] * bool(key)


ACTOR = "actor_rollout_ref__actor__"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        (
            {f"{ACTOR}use_kl_loss": None},
            "warning: actor_rollout_ref.actor.kl_loss_coef has no effect",
        ),
        (
            {f"{ACTOR}use_kl_loss": False},
            "info: actor_rollout_ref.actor.kl_loss_coef has no effect",
        ),
        # One of the two ways to a KL is on, as in verl's own scripts, which write both coefficients.
        ({"algorithm__kl_ctrl": {"kl_coef": 0.001}}, ""),
        ({f"{ACTOR}use_kl_loss": None, "algorithm__use_kl_in_reward": True}, ""),
        ({f"{ACTOR}clip_ratio": 0.3}, "warning: actor_rollout_ref.actor.clip_ratio has no effect"),
        ({f"{ACTOR}clip_ratio": 0.2}, ""),
        ({f"{ACTOR}clip_ratio_low": 0.2, f"{ACTOR}clip_ratio_high": 0.28}, ""),
        ({"critic": {"optim": {"lr": 1e-5}}}, "warning: critic.optim.lr has no effect"),
        ({"critic": {"optim": {"lr": 1e-5}}, "algorithm__adv_estimator": "gae"}, ""),
        (
            {f"{ACTOR}optim": {"lr": 1e-6, "lr_warmup_steps": 0, "lr_warmup_steps_ratio": 0.1}},
            "warning: actor_rollout_ref.actor.optim.lr_warmup_steps_ratio has no effect",
        ),
        ({f"{ACTOR}optim": {"lr": 1e-6, "lr_warmup_steps_ratio": 0.1}}, ""),
        (
            {"actor_rollout_ref__model": {"path": "some/model", "lora_alpha": 32}},
            "warning: actor_rollout_ref.model.lora_alpha has no effect",
        ),
    ],
)
def test_settings_of_verl_that_nothing_reads(
    changes: dict[str, object], expected: str, tmp_path: Path
) -> None:
    found = _messages(SettingOverruled, _changed(VERL, **changes), tmp_path)
    assert [message.startswith(expected) for message in found] == [True] * bool(expected)


@pytest.mark.parametrize(
    ("schedule", "options", "expected"),
    [
        (
            "cosine",
            {"num_cycles": 1},
            "num_cycles 1, the run ends at 100% of the peak learning rate",
        ),
        ("cosine", {"num_cycles": 2.0}, "num_cycles 2, the run ends at 100%"),
        ("cosine", {"num_cycles": 0.5}, ""),
        ("cosine", {"num_cycles": 0.4}, ""),
        ("cosine_with_restarts", {"num_cycles": 3}, ""),
        ("cosine_with_min_lr", {"min_lr": 2e-6}, ""),
        ("cosine_with_min_lr", {"min_lr": 1e-3}, "min_lr sets the minimum learning rate"),
        ("cosine_with_min_lr", {"min_lr_rate": 0.1}, ""),
        (
            "cosine_with_min_lr",
            {"min_lr_rate": 5},
            "min_lr_rate sets the minimum learning rate to 5 times",
        ),
        ("linear", {"num_cycles": 1}, ""),
    ],
)
def test_rates_at_the_end_of_a_schedule(
    schedule: str, options: dict[str, float], expected: str, tmp_path: Path
) -> None:
    settings = {**TRL, "lr_scheduler_type": schedule, "lr_scheduler_kwargs": options}
    found = _messages(ScheduleEndsAtAHighRate, settings, tmp_path)
    assert [expected in message for message in found] == [True] * bool(expected)


@pytest.mark.parametrize(("cycles", "is_high"), [(1.0, True), (0.5, False), (None, False)])
def test_cycles_of_torchtune_and_verl(cycles: float | None, is_high: bool, tmp_path: Path) -> None:
    table = {
        "_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
        "num_warmup_steps": 5,
        **({} if cycles is None else {"num_cycles": cycles}),
    }
    recipe = {**TORCHTUNE, "lr_scheduler": table}
    assert bool(_messages(ScheduleEndsAtAHighRate, recipe, tmp_path)) is is_high
    optim = {"lr": 1e-6, "lr_scheduler_type": "cosine"}
    if cycles is not None:
        optim["num_cycles"] = cycles
    changed = _changed(VERL, **{f"{ACTOR}optim": optim})
    assert bool(_messages(ScheduleEndsAtAHighRate, changed, tmp_path)) is is_high


@pytest.mark.parametrize(
    ("schedule", "cycles", "end"), [("cosine", 1, 1.0), ("cosine", 0.5, 0.0), ("cosine", 2, 1.0)]
)
def test_transformers_ends_as_computed(schedule: str, cycles: float, end: float) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    rate = transformers.get_scheduler(
        schedule,
        optimizer,
        num_warmup_steps=0,
        num_training_steps=100,
        scheduler_specific_kwargs={"num_cycles": cycles},
    )
    for _ in range(100):
        optimizer.step()
        rate.step()
    assert rate.get_last_lr()[0] == pytest.approx(end, abs=1e-6)


RECIPE_ROWS = {
    "_component_": "torchtune.datasets.chat_dataset",
    "source": "json",
    "data_files": "a.json",
}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (VERL, ""),
        (
            _changed(VERL, data__val_files="train.parquet"),
            "train.parquet is used for both training",
        ),
        # verl asks for these files where it never validates, as in its example for Mistral 13B.
        (
            _changed(
                VERL,
                data__val_files="train.parquet",
                trainer__val_before_train=False,
                trainer__test_freq=-1,
            ),
            "",
        ),
        (
            _changed(
                VERL,
                data__val_files="train.parquet",
                trainer__val_before_train=False,
                trainer__test_freq=5,
            ),
            "train.parquet is used for both training",
        ),
        (
            _changed(
                VERL, data__train_files="['a.parquet', 'b.parquet']", data__val_files="b.parquet"
            ),
            "b.parquet is used for both training and evaluation",
        ),
        (
            _changed(TORCHTUNE, dataset=RECIPE_ROWS, dataset_val=RECIPE_ROWS),
            "a.json is used for both training",
        ),
        (
            _changed(
                TORCHTUNE, dataset=RECIPE_ROWS, dataset_val={**RECIPE_ROWS, "data_files": "b.json"}
            ),
            "",
        ),
        (
            _changed(
                TORCHTUNE,
                dataset={**RECIPE_ROWS, "split": "train[:90%]"},
                dataset_val={**RECIPE_ROWS, "split": "train[90%:]"},
            ),
            "",
        ),
    ],
)
def test_evaluations_on_what_is_trained(
    settings: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    found = _messages(DatasetListedTwiceOrAlsoEvaluated, settings, tmp_path)
    assert [expected in message for message in found] == [True] * bool(expected)
