"""Calls of a Python program as one Config; the trainers' classes say the same of themselves."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from truetune.errors import SpecError
from truetune.settings.config import SettingLocation
from truetune.settings.stacks.config_draft import UNKNOWN_VALUE
from truetune.settings.stacks.settings_of_python_calls import (
    ConfigCall,
    config_of_calls_of_one_run,
    config_of_python_call,
)


def place(key: str, line: int) -> SettingLocation:
    return SettingLocation("train.py", line, key)


def test_one_call() -> None:
    found = config_of_python_call(
        "SFTConfig",
        {"max_length": 64, "loss": 1},
        {"max_length": place("max_length", 7)},
        "train.py",
        "text",
    )
    assert (found.stack, found.version, found.path, found.text, found.limit) == (
        "trl",
        "1.16.0",
        "train.py",
        "text",
        64,
    )
    assert found.places["max_length"].line == 7
    assert found.unknown == (SettingLocation("train.py", 1, "loss"),)
    assert (found.spec.max_length, found.spec.training.learning_rate, found.spec.training.bf16) == (
        64,
        2e-5,
        True,
    )
    plain = config_of_python_call("TrainingArguments", {}, {}, "train.py", "")
    assert (plain.stack, plain.version, plain.limit, plain.spec.training.bf16) == (
        "transformers",
        "5.23.0",
        None,
        False,
    )


def test_several_calls() -> None:
    found = config_of_calls_of_one_run(
        [
            ConfigCall(
                "DPOConfig", {"beta": 0.2, "loss_type": ["sigmoid", "sft"], "max_prompt_length": 9}
            ),
            ConfigCall(
                "LoraConfig",
                {"r": 64, "target_modules": {"v_proj", "q_proj"}, "alpha": 1},
                {"r": place("r", 3)},
            ),
            ConfigCall("BitsAndBytesConfig", {"load_in_4bit": True}),
            ConfigCall(
                "from_pretrained",
                {"pretrained_model_name_or_path": "a/b", "dtype": "torch.bfloat16"},
            ),
            ConfigCall("from_pretrained", {"pretrained_model_name_or_path": "c/d"}),
            ConfigCall("train", {"resume_from_checkpoint": True}),
            ConfigCall("print", {"sep": ""}),
        ],
        "train.py",
        "",
    )
    training = found.spec.training
    assert (training.method, training.beta, training.loss_type, training.load_in) == (
        "dpo",
        0.2,
        "sigmoid+sft",
        4,
    )
    assert training.lora is not None
    assert (training.lora.r, training.lora.lora_alpha, training.lora.target_modules) == (
        64,
        8,
        ("q_proj", "v_proj"),
    )
    assert (found.spec.tokenizer, training.resume_from_checkpoint) == ("c/d", True)
    assert [one.key for one in found.unknown] == ["max_prompt_length", "LoraConfig.alpha"]
    assert [(old.place.key, old.now) for old in found.renamed] == [("max_prompt_length", None)]
    assert found.places["training.lora.r"].line == 3


def test_what_cannot_be_told_stays_open() -> None:
    unsure = {
        "learning_rate": UNKNOWN_VALUE,
        "max_length": UNKNOWN_VALUE,
        "fp16": UNKNOWN_VALUE,
        "gradient_checkpointing": UNKNOWN_VALUE,
    }
    found = config_of_calls_of_one_run(
        [
            ConfigCall("SFTConfig", unsure, {"learning_rate": place("learning_rate", 2)}),
            ConfigCall("LoraConfig", {"target_modules": ["q_proj", UNKNOWN_VALUE]}),
        ],
        "train.py",
        "",
    )
    training = found.spec.training
    assert (training.learning_rate, found.limit, training.fp16, training.bf16) == (
        None,
        None,
        None,
        None,
    )
    assert training.gradient_checkpointing is None
    assert training.lora is not None
    assert training.lora.target_modules is None
    assert found.places["training.learning_rate"].line == 2
    open_end = config_of_calls_of_one_run(
        [ConfigCall("SFTConfig", {"packing": True}, complete=False)], "train.py", ""
    )
    assert (open_end.limit, open_end.spec.training.learning_rate, open_end.spec.training.bf16) == (
        None,
        None,
        None,
    )
    assert open_end.spec.training.packing is True


def test_without_arguments_of_a_trainer() -> None:
    found = config_of_calls_of_one_run([ConfigCall("LoraConfig", {})], "train.py", "")
    assert found.spec.training.lora is not None
    assert found.spec.training.learning_rate is None


def test_a_value_of_the_wrong_kind() -> None:
    with pytest.raises(
        SpecError, match=r"train.py:4: learning_rate: input should be a valid number"
    ):
        config_of_python_call(
            "SFTConfig",
            {"learning_rate": "fast"},
            {"learning_rate": place("learning_rate", 4)},
            "train.py",
            "",
        )


TRAINERS_OWN = ("loss_type", "fsdp", "eval_packing")
"""Given another form here, or resolved by the trainer itself"""


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("SFTConfig", {}),
        (
            "SFTConfig",
            {"packing": True, "eval_strategy": "steps", "logging_steps": 7, "max_length": 99},
        ),
        ("DPOConfig", {"num_train_epochs": 2, "warmup_steps": 0.1}),
        ("KTOConfig", {"gradient_checkpointing": False}),
        ("RewardConfig", {"save_strategy": "epoch"}),
        ("TrainingArguments", {"optim": "adamw_8bit", "max_grad_norm": 0.3}),
    ],
)
def test_as_the_class_itself_resolves_them(
    name: str, arguments: dict[str, Any], tmp_path: Any
) -> None:
    """Each field is what the real class holds after its own __post_init__."""
    transformers = pytest.importorskip("transformers")
    trl = pytest.importorskip("trl")
    made = getattr(trl, name, None) or getattr(transformers, name)
    on_this_machine = {"output_dir": str(tmp_path), "use_cpu": True, "bf16": False}
    real = made(**arguments, **on_this_machine)
    ours = config_of_python_call(name, {**arguments, **on_this_machine}, {}, "train.py", "")
    training = ours.spec.training
    for field in dataclasses.fields(real):
        mine = getattr(training, field.name, None)
        if (
            field.name in type(training).model_fields
            and field.name not in TRAINERS_OWN
            and mine is not None
        ):
            value = getattr(real, field.name)
            assert mine == getattr(value, "value", value), field.name
    assert ours.limit == getattr(real, "max_length", None)
