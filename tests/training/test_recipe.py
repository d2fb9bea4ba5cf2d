"""Recipes: what is chosen, what is refused, and that the trainers take it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truetune.checks.judge_settings import judge_settings
from truetune.errors import SpecError, UsageError
from truetune.settings.config import Config
from truetune.settings.read_truetune_settings import find_own_settings_and_file, validate_settings
from truetune.settings.run_spec import RunSpec
from truetune.training.default_settings import DEFAULTS
from truetune.training.setting_conflicts import (
    METHODS_OF_SETTINGS,
    OTHER_STACKS,
    SET_BY_TRUETUNE,
    SUPPORTED_METHODS,
)
from truetune.training.training_recipe import (
    METHOD_ARGUMENTS,
    SHARED_ARGUMENTS,
    Recipe,
    make_recipe,
    trainer_arguments_of_recipe,
)

METHODS = ("sft", "dpo", "orpo", "kto")
"""Methods that train on the answers of rows"""


def spec(method: str = "sft", **given: Any) -> RunSpec:
    training = {"method": method, **given.pop("training", {})}
    return validate_settings({"data": "a.jsonl", **given, "training": training}, "test")


def made(
    method: str = "sft",
    *,
    rows: int | None = 1000,
    gpu: bool = False,
    bf16: bool = False,
    **settings: Any,
) -> Recipe:
    return make_recipe(spec(method, **settings), rows=rows, gpu=gpu, bf16=bf16)


def arguments_class(method: str) -> Any:
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from transformers import TrainingArguments
    from trl import DPOConfig, GRPOConfig, KTOConfig
    from trl.experimental.orpo import ORPOConfig

    return {
        "sft": TrainingArguments,
        "dpo": DPOConfig,
        "orpo": ORPOConfig,
        "kto": KTOConfig,
        "grpo": GRPOConfig,
    }[method]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rows", [None, 1000])
def test_the_trainers_take_the_arguments(method: str, rows: int | None, tmp_path: Path) -> None:
    chosen = made(
        method,
        rows=rows,
        training={"output_dir": str(tmp_path), "lora": {}},
        trainer={"adam_epsilon": "1e-7"},
    )
    arguments = arguments_class(method)(**trainer_arguments_of_recipe(chosen))
    training = chosen.training
    assert arguments.learning_rate == DEFAULTS[training.method].adapter
    assert arguments.warmup_steps == DEFAULTS[training.method].warmup
    assert (arguments.seed, arguments.adam_epsilon, arguments.bf16, arguments.use_cpu) == (
        42,
        1e-7,
        False,
        True,
    )
    assert arguments.activation_checkpointing is False
    assert arguments.activation_checkpointing_kwargs == {"use_reentrant": False}
    assert arguments.logging_nan_inf_filter is False
    assert arguments.remove_unused_columns is False
    assert arguments.eval_strategy == "steps"
    assert (
        arguments.gradient_accumulation_steps * arguments.per_device_train_batch_size
        == chosen.effective_batch
        == 16
    )
    if method == "kto":
        assert arguments.train_sampling_strategy == "sequential"
    if method != "sft":
        assert (arguments.max_length, arguments.beta) == (2048, 0.1)


def test_grpo_takes_whole_groups_and_evaluates_no_loss(tmp_path: Path) -> None:
    chosen = made(
        "grpo",
        training={
            "output_dir": str(tmp_path),
            "rewards": ["agrees:choice:A-D", "exact"],
            "reward_weights": [1, 0.5],
            "num_generations": 6,
        },
    )
    arguments = arguments_class("grpo")(**trainer_arguments_of_recipe(chosen))
    assert (arguments.num_generations, arguments.max_completion_length) == (6, 256)
    assert (arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps) == (6, 4)
    assert (arguments.beta, arguments.reward_weights) == (0.0, [1.0, 0.5])
    assert (arguments.learning_rate, arguments.eval_strategy) == (DEFAULTS["grpo"].full, "no")
    # 1,000 prompts, four of them in a step.
    assert chosen.steps == 250
    # What is rewarded is what is watched.
    assert chosen.spec.watch.parser == "choice:A-D"
    again = make_recipe(chosen.spec, rows=1000, gpu=False, bf16=False)
    assert (again.spec, again.choices) == (chosen.spec, ())


@pytest.mark.parametrize("method", METHODS)
def test_no_evaluation_without_rows_for_it(method: str) -> None:
    arguments = trainer_arguments_of_recipe(made(method), evaluates=False)
    assert (arguments["eval_strategy"], "eval_steps" in arguments) == ("no", False)
    assert (
        trainer_arguments_of_recipe(made(method, training={"val_size": 0}))["eval_strategy"] == "no"
    )
    assert (
        trainer_arguments_of_recipe(made(method, eval_data="b.jsonl", training={"val_size": 0}))[
            "eval_strategy"
        ]
        == "steps"
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("adapter", [True, False])
def test_what_is_chosen_passes_the_rules(method: str, adapter: bool) -> None:
    chosen = made(
        method, gpu=True, bf16=True, model="org/model", training={"lora": {}} if adapter else {}
    )
    config = Config("truetune", "", "", chosen.spec, limit=chosen.max_length)
    judged = judge_settings(config, chosen.spec)
    assert (judged.findings, [part for part in judged.not_judged if part.asked]) == ((), [])
    assert judged.examined


def test_every_choice_is_said_and_what_is_set_is_kept() -> None:
    chosen = made(training={"lora": {}})
    for choice in chosen.choices:
        found: Any = chosen.spec
        for name in choice.setting.split("."):
            found = getattr(found, name)
        assert found == choice.value
    again = make_recipe(chosen.spec, rows=1000, gpu=False, bf16=False)
    assert (again.spec, again.choices) == (chosen.spec, ())
    own = made(
        training={"learning_rate": 1e-3, "lora": {"r": 4}, "num_train_epochs": 7}, max_length=99
    )
    training = own.training
    assert training.lora is not None
    assert (training.learning_rate, training.lora.r, training.num_train_epochs, own.max_length) == (
        1e-3,
        4,
        7,
        99,
    )
    said = {choice.setting for choice in own.choices}
    assert not said & {
        "training.learning_rate",
        "training.lora.r",
        "training.num_train_epochs",
        "max_length",
    }


def test_lora() -> None:
    lora = made(training={"lora": {}}).training.lora
    assert lora is not None
    assert (lora.r, lora.lora_alpha, lora.lora_dropout, lora.target_modules) == (
        16,
        32,
        0.0,
        "all-linear",
    )
    wider = made(training={"lora": {"r": 64}}).training.lora
    stable = made(
        training={"lora": {"r": 64, "use_rslora": True, "target_modules": ["q_proj"]}}
    ).training.lora
    assert wider is not None
    assert stable is not None
    assert (wider.lora_alpha, stable.lora_alpha, stable.target_modules) == (128, 16, ("q_proj",))


@pytest.mark.parametrize("method", METHODS)
def test_an_adapter_learns_faster(method: str) -> None:
    full, lora = (
        made(method).training.learning_rate,
        made(method, training={"lora": {}}).training.learning_rate,
    )
    adapter = made(method, training={"adapter": "path"}).training.learning_rate
    assert full is not None
    assert lora is not None
    assert lora == adapter
    assert 5 <= round(lora / full, 6) <= 10


@pytest.mark.parametrize(
    ("training", "machine", "dtype", "bf16"),
    [
        ({}, {}, "float32", False),
        ({}, {"gpu": True, "bf16": True}, "float32", True),
        ({"lora": {}}, {"gpu": True, "bf16": True}, "auto", True),
        ({"adapter": "path"}, {}, "auto", False),
        ({"lora": {}, "load_in": 4}, {"gpu": True, "bf16": True}, "bfloat16", True),
        ({"lora": {}, "load_in": 4}, {"gpu": True}, "float32", False),
        ({"lora": {}, "load_in": 4, "fp16": True}, {"gpu": True, "bf16": True}, "float16", False),
        ({"dtype": "bfloat16"}, {"gpu": True, "bf16": True}, "bfloat16", True),
    ],
)
def test_types(training: dict[str, Any], machine: dict[str, bool], dtype: str, bf16: bool) -> None:
    found = made("sft", training=training, **machine).training
    assert (found.dtype, found.bf16) == (dtype, bf16)


@pytest.mark.parametrize(
    ("method", "rows", "training", "batch", "accumulation"),
    [
        ("sft", None, {}, 2, 8),
        ("sft", 100_000, {}, 2, 8),
        ("sft", 100_000, {"packing": False}, 4, 4),
        ("sft", 100_000, {"devices": 4}, 2, 2),
        ("sft", 100_000, {"devices": 32}, 1, 1),
        ("sft", 100_000, {"per_device_train_batch_size": 3}, 3, 6),
        ("sft", 100_000, {"gradient_accumulation_steps": 1}, 2, 1),
        ("sft", 100, {}, 2, 2),
        ("sft", 10, {}, 1, 1),
        ("sft", 10, {"max_steps": 500}, 2, 8),
        ("dpo", 10, {}, 2, 2),
        ("kto", 10, {}, 4, 4),
        ("kto", 10, {"devices": 8}, 4, 1),
    ],
)
def test_batches(
    method: str, rows: int | None, training: dict[str, Any], batch: int, accumulation: int
) -> None:
    found = made(method, rows=rows, training=training).training
    assert (found.per_device_train_batch_size, found.gradient_accumulation_steps) == (
        batch,
        accumulation,
    )


def test_steps() -> None:
    chosen = made(
        rows=1001, training={"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
    )
    assert chosen.steps == 3 * 63
    assert made(rows=None).steps is None
    assert made(rows=None, training={"max_steps": 7}).steps == 7
    training = chosen.training
    assert (training.logging_steps, training.save_steps, training.eval_steps) == (2, 48, 48)
    unknown = made(rows=None).training
    assert (unknown.logging_steps, unknown.save_steps, unknown.eval_steps) == (0.01, 0.25, 0.25)


@pytest.mark.parametrize("steps", [3, 7])
def test_steps_are_those_of_the_trainer(steps: int, tmp_path: Path) -> None:
    from torch.utils.data import DataLoader
    from transformers import Trainer, TrainingArguments

    from tests.auditing import tiny

    chosen = made(
        rows=10 * steps + 1,
        training={"output_dir": str(tmp_path), "packing": False, "num_train_epochs": 2},
    )
    arguments = TrainingArguments(**trainer_arguments_of_recipe(chosen, evaluates=False))
    trainer = Trainer(tiny.model(), arguments, train_dataset=[{}] * (10 * steps + 1))
    loader: DataLoader[Any] = trainer.get_train_dataloader()
    assert chosen.steps == trainer.set_initial_training_values(arguments, loader)[-1]


@given(
    method=st.sampled_from(METHODS),
    rows=st.none() | st.integers(1, 10**7),
    asked=st.fixed_dictionaries({}, optional={
        "per_device_train_batch_size": st.integers(2, 64), "gradient_accumulation_steps": st.integers(1, 64),
        "devices": st.integers(1, 64), "num_train_epochs": st.integers(1, 9), "max_steps": st.integers(-1, 99),
        "packing": st.just(False),
    }),
)  # fmt: skip
@settings(deadline=None, max_examples=100)
def test_any_run(method: str, rows: int | None, asked: dict[str, Any]) -> None:
    chosen = made(method, rows=rows, training=asked)
    training, start = chosen.training, DEFAULTS[chosen.method]
    assert {name: getattr(training, name) for name in asked} == asked
    assert training.per_device_train_batch_size is not None
    assert training.per_device_train_batch_size >= min(
        start.smallest, asked.get("per_device_train_batch_size", 64)
    )
    if not {"per_device_train_batch_size", "gradient_accumulation_steps"} & asked.keys():
        assert chosen.effective_batch < 16 + training.per_device_train_batch_size * training.devices
        assert chosen.effective_batch >= start.fewest
    assert (chosen.steps is None) == (rows is None and asked.get("max_steps", -1) < 1)
    again = make_recipe(chosen.spec, rows=rows, gpu=False, bf16=False)
    assert (again.spec, again.choices) == (chosen.spec, ())


def test_off_is_no(tmp_path: Path) -> None:
    (tmp_path / "truetune.yaml").write_text("training: {eval_strategy: no, save_strategy: no}")
    found, _ = find_own_settings_and_file(None, tmp_path)
    training = validate_settings(found, "test").training
    assert (training.eval_strategy, training.save_strategy) == ("no", "no")


def test_the_model_shapes_the_run(tmp_path: Path) -> None:
    shape = {
        "model_type": "llama",
        "vocab_size": 100,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 512,
    }
    (tmp_path / "config.json").write_text(json.dumps(shape))
    small = made(model=str(tmp_path), gpu=True, bf16=True)
    assert (small.max_length, small.training.gradient_checkpointing) == (512, False)
    (tmp_path / "config.json").write_text(json.dumps({**shape, "vocab_size": 100_000_000}))
    assert made(model=str(tmp_path), gpu=True, bf16=True).training.gradient_checkpointing
    assert made(model=str(tmp_path)).training.gradient_checkpointing is False
    (tmp_path / "config.json").write_text("{")
    assert made(model=str(tmp_path)).max_length == 2048


def test_packing() -> None:
    assert made().packing
    assert not made(encode={"packing": "none"}).packing
    assert not made(training={"packing": False}).packing
    assert not made("dpo").packing


def test_what_the_user_passes_to_the_trainer_wins() -> None:
    chosen = made(
        training={"learning_rate": 1e-5},
        trainer={
            "learning_rate": "3e-4",
            "activation_checkpointing": True,
            "seed": 7,
            "report_to": "tensorboard",
            "per_device_train_batch_size": 1,
        },
    )
    arguments = trainer_arguments_of_recipe(chosen)
    assert arguments["learning_rate"] == 3e-4
    assert (arguments["activation_checkpointing"], arguments["seed"], chosen.seed) == (True, 7, 7)
    assert (arguments["report_to"], chosen.spec.trainer) == (
        "tensorboard",
        {"seed": 7, "report_to": "tensorboard"},
    )
    assert (arguments["per_device_train_batch_size"], arguments["gradient_accumulation_steps"]) == (
        1,
        16,
    )
    with pytest.raises(SpecError, match=r"trainer: training.learning_rate: .*number"):
        made(trainer={"learning_rate": "fast"})


@pytest.mark.parametrize(
    ("method", "settings", "machine", "message"),
    [
        ("ppo", {}, {}, "ppo is not trained here; there are sft, dpo, orpo, kto, grpo"),
        ("grpo", {}, {}, "training.rewards: grpo needs at least one"),
        ("grpo", {"training": {"rewards": "exact", "reward_weights": [1, 2]}}, {}, "2 weights for 1 rewards"),
        ("grpo", {"training": {"rewards": "exact", "num_generations": 1}}, {}, "set 2 or more"),
        ("grpo", {"training": {"rewards": "exact", "max_completion_length": 0}}, {}, "0 is too few"),
        ("grpo", {"training": {"rewards": "exact", "eval_strategy": "steps"}}, {}, "the loss of grpo says nothing"),
        ("grpo", {"training": {"rewards": "exact"}, "trainer": {"tools": []}}, {}, "samples one answer to each"),
        ("sft", {"training": {"rewards": "exact"}}, {}, "training.rewards means nothing to sft, only to grpo"),
        ("dpo", {"encode": {"packing": "best-fit"}}, {}, "dpo compares whole answers, which cannot share a row"),
        ("kto", {"training": {"packing": True}}, {}, "kto compares whole answers"),
        ("sft", {"training": {"packing": False}, "encode": {"packing": "best-fit"}}, {}, "contradicts encode.packing"),
        ("sft", {"training": {"packing_strategy": "wrapped"}}, {}, "wrapped cuts or mixes examples"),
        ("sft", {"training": {"bf16": True, "fp16": True}}, {"gpu": True, "bf16": True}, "keep bf16"),
        ("sft", {"training": {"bf16": True}}, {"gpu": True}, "does not compute bfloat16"),
        ("sft", {"training": {"fp16": True}}, {}, "float16 is for GPUs"),
        ("sft", {"training": {"load_in": 4}}, {"gpu": True}, "4-bit weights cannot be trained; set training.lora"),
        ("sft", {"training": {"load_in": 4, "lora": {}}}, {}, "needs a GPU"),
        ("sft", {"training": {"lora": {}, "adapter": "a"}}, {}, "leave training.lora out"),
        ("sft", {"training": {"dtype": "float16"}}, {"gpu": True}, "set dtype: float32"),
        ("sft", {"training": {"fsdp": True, "deepspeed_stage": 3}}, {}, "keep one"),
        ("sft", {"training": {"warmup_ratio": 0.1, "warmup_steps": 5}}, {}, "keep warmup_steps"),
        ("sft", {"training": {"beta": 0.1}}, {}, "training.beta means nothing to sft"),
        ("orpo", {"training": {"reference": "a"}}, {}, "training.reference means nothing to orpo, only to dpo, kto"),
        ("kto", {"training": {"per_device_train_batch_size": 1}}, {}, "1 row has no other; set at least 4"),
        ("kto", {"trainer": {"per_device_train_batch_size": 1}}, {}, "1 row has no other"),
        ("kto", {"trainer": {"train_sampling_strategy": "random"}}, {}, "pairs each row with its neighbours"),
        ("sft", {"training": {"gradient_accumulation_steps": 0}}, {}, "gradient_accumulation_steps: 0 is too few"),
        ("sft", {"trainer": {"max_length": 5}}, {}, "trainer.max_length: set max_length beside training"),
        ("sft", {"training": {"device_map": "auto"}}, {}, "training puts the model on one device a process"),
        ("sft", {"training": {"assistant_only_loss": True}}, {}, "set learn: assistant"),
        ("sft", {"training": {"other": {"x": 1}}}, {}, "put the arguments of the trainer under trainer"),
    ],
)  # fmt: skip
def test_contradictions(
    method: str, settings: dict[str, Any], machine: dict[str, bool], message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        made(method, **machine, **settings)
    assert message in str(raised.value)
    assert len(str(raised.value).split("\n")) == 1


def test_all_contradictions_are_said_at_once() -> None:
    with pytest.raises(UsageError) as raised:
        made(training={"load_in": 4, "beta": 1, "device_map": "auto"})
    assert len(str(raised.value).split("\n")) == 4


def test_a_lone_row_is_enough_for_a_loss_without_kl() -> None:
    chosen = made(
        "kto", training={"loss_type": "apo_zero_unpaired", "per_device_train_batch_size": 1}
    )
    assert chosen.training.per_device_train_batch_size == 1


def test_the_tables_name_settings() -> None:
    from truetune.settings.training_settings import Training

    known = set(Training.model_fields)
    assert {*SHARED_ARGUMENTS, *OTHER_STACKS, *METHODS_OF_SETTINGS} <= known
    methods = (*METHODS, "grpo")
    assert set(DEFAULTS) == set(SUPPORTED_METHODS) == set(methods)
    for method in methods:
        accepted = set(arguments_class(method).__dataclass_fields__)
        assert {*SHARED_ARGUMENTS, *METHOD_ARGUMENTS.get(method, ())} <= accepted  # type: ignore[call-overload]
    accepted = {name for method in METHODS for name in arguments_class(method).__dataclass_fields__}
    assert set(SET_BY_TRUETUNE) - accepted == {"packing"}
