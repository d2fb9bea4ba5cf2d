"""Settings of verl, OpenRLHF and NeMo RL: files of tables, overrides of commands, and options."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.checks.config.settings import VERL
from truetune.errors import SpecError
from truetune.parsing.shell_commands import read_command_file
from truetune.settings.config import Config
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.settings.stacks.settings_of_stack_commands import (
    configs_of_commands_without_settings_file,
)

COMMAND = """\
#!/bin/bash
MODEL=some/model
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=rloo \\
    data.train_files='["a.parquet"]' \\
    actor_rollout_ref.model.path=$MODEL \\
    actor_rollout_ref.model.lora_rank=32 \\
    actor_rollout_ref.actor.optim.lr=3e-6 \\
    +actor_rollout_ref.rollout.n=5 \\
    trainer.total_epochs=3 $@
"""
OPENRLHF = """\
ray job submit --address="http://127.0.0.1:8265" -- python3 -m openrlhf.cli.train_ppo_ray \\
   --pretrain some/model-instruct --advantage_estimator group_norm --n_samples_per_prompt 8 \\
   --actor_learning_rate 5e-7 --lora_rank 16 --packing_samples
"""
GROUPED = """\
python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path some/model \\
   --algo.advantage.estimator rloo --rollout.n_samples_per_prompt 8 --actor.adam.lr 5e-7
"""


def _configs(folder: Path, text: str) -> list[Config]:
    """The settings of the commands in a script."""
    path = folder / "run.sh"
    path.write_text(text, encoding="utf-8")
    return list(configs_of_commands_without_settings_file(read_command_file(path)))


def test_a_file_of_verl(tmp_path: Path) -> None:
    path = tmp_path / "grpo.yaml"
    path.write_text(yaml.safe_dump(VERL), encoding="utf-8")
    config = read_config(path)
    training = config.spec.training
    assert (config.stack, config.spec.model, config.unknown) == ("verl", "some/model", ())
    assert (training.method, training.learning_rate, training.num_train_epochs) == ("grpo", 1e-6, 2)
    assert training.lora is None
    assert config.places["training.learning_rate"].key == "actor_rollout_ref.actor.optim.lr"


def test_verls_sft(tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    settings = {
        "data": {"train_files": "a.parquet", "max_length": 2048},
        "model": {"partial_pretrain": "some/model", "lora_rank": 32, "lora_alpha": 16},
        "optim": {"lr": "1e-4"},
    }
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    config = read_config(path)
    training = config.spec.training
    assert (config.stack, training.method, training.learning_rate) == ("verl", "sft", 1e-4)
    assert config.limit == 2048
    assert training.lora is not None
    assert training.lora.r == 32


def test_overrides_of_a_command(tmp_path: Path) -> None:
    (config,) = _configs(tmp_path, COMMAND)
    training = config.spec.training
    assert (config.stack, config.spec.model, training.method) == ("verl", "some/model", "grpo")
    assert training.learning_rate == 3e-6
    assert training.lora is not None
    assert training.lora.r == 32
    assert config.raw["actor_rollout_ref"]["rollout"]["n"] == 5
    assert config.key_places["actor_rollout_ref.rollout.n"].line == 9
    assert not config.own_keys


def test_overrides_stand_above_the_file_that_the_command_names(tmp_path: Path) -> None:
    (tmp_path / "grpo.yaml").write_text(yaml.safe_dump(VERL), encoding="utf-8")
    command = (
        'python3 -m verl.trainer.main_ppo --config-path "$PWD" --config-name grpo'
        " actor_rollout_ref.rollout.n=1\n"
    )
    (config,) = _configs(tmp_path, command)
    assert config.raw["actor_rollout_ref"]["rollout"]["n"] == 1
    assert config.spec.model == "some/model"


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m verl.trainer.main_ppo --config-name not_here trainer.total_epochs=2\n",
        "python3 -m verl.trainer.main_ppo $ROLLOUT trainer.total_epochs=2\n",
        # Programs on verl with keys of their own have defaults of their own.
        "python3 -m verl.trainer.main_ppo trainer.total_epochs=2 env.rollout.n=8\n",
        "python3 -m verl.trainer.main_ppo trainer.total_epochs=2 max_turns=4\n",
    ],
)
def test_what_a_command_leaves_open_has_no_default(command: str, tmp_path: Path) -> None:
    (config,) = _configs(tmp_path, command)
    assert config.own_keys


@pytest.mark.parametrize(("text", "lora"), [(OPENRLHF, True), (GROUPED, False)])
def test_options_of_openrlhf(text: str, lora: bool, tmp_path: Path) -> None:
    (config,) = _configs(tmp_path, text)
    training = config.spec.training
    assert (config.stack, training.method, training.learning_rate) == ("openrlhf", "grpo", 5e-7)
    assert config.raw["n_samples_per_prompt"] == 8
    assert (training.lora is not None) is lora


def test_a_file_of_nemo_rl(tmp_path: Path) -> None:
    path = tmp_path / "grpo.yaml"
    settings = {
        "grpo": {"num_prompts_per_step": 32, "num_generations_per_prompt": 16, "max_num_steps": 50},
        "policy": {
            "model_name": "some/model",
            "optimizer": {"name": "torch.optim.AdamW", "kwargs": {"lr": 5e-6}},
        },
        "checkpointing": {"enabled": True, "metric_name": "val:accuracy", "higher_is_better": True},
    }
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    config = read_config(path)
    training = config.spec.training
    assert (config.stack, config.spec.model, training.method) == ("nemo-rl", "some/model", "grpo")
    assert (training.learning_rate, training.max_steps) == (5e-6, 50)
    assert (training.metric_for_best_model, training.greater_is_better) == ("accuracy", True)


@pytest.mark.parametrize(
    "settings",
    [
        {"data": {"path": "a"}, "model": {"name": "b"}, "trainer": {"epochs": 1}},
        {"actor": {"lr": 1e-6}, "critic": {"lr": 1e-5}, "trainer": {"epochs": 1}},
        {"policy": {"name": "a"}, "data": {"name": "b"}, "env": {"name": "c"}},
    ],
)
def test_tables_of_the_same_names_are_of_nobody(
    settings: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    with pytest.raises(SpecError):
        read_config(path)


def test_a_redirection_is_no_value_of_an_option(tmp_path: Path) -> None:
    command = (
        "python3 -m openrlhf.cli.train_sft --pretrain some/model --packing_samples > run.log\n"
    )
    (config,) = _configs(tmp_path, command)
    assert config.raw["packing_samples"] is True
