"""Settings that are changed until a run fits; a run whose memory runs out."""

from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import TrainerCallback

import truetune
from bench.memory import SHAPES
from tests.auditing import tiny
from truetune.errors import OutOfMemoryError
from truetune.memory.estimate_memory import GIB
from truetune.memory.plan_memory import Plan
from truetune.settings.run_spec import RunSpec
from truetune.training import change_settings_until_memory_fits as fits
from truetune.training.change_settings_until_memory_fits import (
    MemoryFitting,
    advice_where_it_does_not_fit,
    changes_after_out_of_memory,
    changes_as_yaml_lines,
    plan_run_memory,
    planned_changes_until_fit,
    settings_with_changes_applied,
)
from truetune.training.handle_out_of_memory_of_run import is_out_of_memory_error
from truetune.training.progress_listeners import PlainListener
from truetune.training.training_recipe import make_recipe

FULL = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,
    "gradient_checkpointing": False,
}


def asked(folder: Path, training: dict[str, Any], **settings: Any) -> RunSpec:
    """The settings of a run of Llama 3.1 8B, of which there is config.json."""
    (folder / "config.json").write_text(json.dumps({**SHAPES["llama-3.1-8b"], "dtype": "bfloat16"}))
    return RunSpec.model_validate(
        {"model": str(folder), "max_length": 4096, "training": training, **settings}
    )


def filled(spec: RunSpec) -> RunSpec:
    return make_recipe(spec, rows=10_000, gpu=True, bf16=True).spec


def plan_of(spec: RunSpec, gib: float | None) -> Plan:
    found = plan_run_memory(filled(spec), None if gib is None else gib * GIB)
    assert found is not None
    return found


def effective(spec: RunSpec) -> int:
    made = spec.training
    return (
        (made.per_device_train_batch_size or 0)
        * (made.gradient_accumulation_steps or 0)
        * made.devices
    )


@pytest.mark.parametrize(
    ("training", "gpu"),
    [
        ({**FULL, "lora": {"r": 8}}, 40),
        ({**FULL, "lora": {}, "devices": 2}, 24),
        (FULL, 48),
        ({}, 40),
    ],
)
def test_a_run_is_changed_until_it_fits(tmp_path: Path, training: dict[str, Any], gpu: int) -> None:
    spec = asked(tmp_path, training)
    before = plan_of(spec, gpu)
    assert before.verdict == "too large"
    changes = planned_changes_until_fit(before)
    after = plan_of(settings_with_changes_applied(spec, changes), gpu)
    assert after.verdict == "fits"
    assert after.estimate.peak.total / GIB <= changes[-1].total * (1 + 1e-9)
    assert effective(filled(settings_with_changes_applied(spec, changes))) == effective(
        filled(spec)
    )
    assert [change.total for change in changes] == sorted(
        (change.total for change in changes), reverse=True
    )


def test_what_costs_comes_last_and_only_where_it_must(tmp_path: Path) -> None:
    lora = planned_changes_until_fit(plan_of(asked(tmp_path, {**FULL, "lora": {"r": 8}}), 40))
    full = planned_changes_until_fit(plan_of(asked(tmp_path, FULL), 48))
    assert lora
    assert not any(change.costs or change.restarts for change in lora)
    costs = [change.costs for change in full]
    assert costs == sorted(costs)
    assert costs[-1]
    assert "learned" in str(full[-1])


def test_an_adapter_gets_its_own_learning_rate_and_dtype(tmp_path: Path) -> None:
    spec = asked(tmp_path, {**FULL, "dtype": "float32"})
    found = plan_of(spec, 40)
    made = filled(settings_with_changes_applied(spec, planned_changes_until_fit(found))).training
    assert made.lora is not None
    assert (made.learning_rate, made.dtype) == (2e-4, "bfloat16")


def test_arguments_of_the_trainer_give_way(tmp_path: Path) -> None:
    spec = asked(
        tmp_path, {"lora": {}}, trainer={**FULL, "activation_checkpointing": False, "seed": 7}
    )
    found = plan_of(spec, 24)
    made = settings_with_changes_applied(spec, planned_changes_until_fit(found))
    assert made.trainer == {"seed": 7}
    assert filled(made).training.gradient_checkpointing
    assert effective(filled(made)) == 16


def test_the_lines_can_be_pasted(tmp_path: Path) -> None:
    spec = asked(tmp_path, FULL)
    found = plan_of(spec, 24)
    changes = planned_changes_until_fit(found)
    pasted: dict[str, Any] = {}
    for line in changes_as_yaml_lines(changes):
        if line.startswith("       "):
            ((name, value),) = yaml.safe_load(line).items()
            pasted[name.removeprefix("training.")] = value
    for name, value in pasted.items():
        made = settings_with_changes_applied(spec, changes)
        held: Any = made.max_length if name == "max_length" else getattr(made.training, name)
        assert value == (
            held.model_dump(mode="json", exclude_unset=True) if name == "lora" else held
        )
    assert next(advice_where_it_does_not_fit(found)).startswith("memory: ")


def test_what_fits_stays(tmp_path: Path) -> None:
    found = plan_of(asked(tmp_path, {"lora": {}, "gradient_checkpointing": True}), 80)
    assert planned_changes_until_fit(found) == []
    assert list(advice_where_it_does_not_fit(found)) == []
    assert plan_run_memory(RunSpec(model=str(tmp_path / "nothing")), GIB) is None


def test_relief_comes_to_an_end(tmp_path: Path) -> None:
    spec = asked(tmp_path, {**FULL, "lora": {}})
    peaks = []
    for _ in range(12):
        found = plan_of(spec, None)
        peaks.append(found.estimate.peak.total)
        changes = changes_after_out_of_memory(found)
        if not changes:
            break
        spec = settings_with_changes_applied(spec, changes[:1])
    assert len(peaks) < 12
    assert peaks == sorted(set(peaks), reverse=True)
    assert effective(filled(spec)) == 16


def test_an_evaluation_that_runs_out_gets_smaller_batches(tmp_path: Path) -> None:
    spec = asked(tmp_path, {**FULL, "per_device_eval_batch_size": 8})
    found = plan_of(spec, None)
    made = settings_with_changes_applied(
        spec, changes_after_out_of_memory(found, evaluating=True)[:1]
    ).training
    assert (made.per_device_eval_batch_size, made.per_device_train_batch_size) == (1, 8)


def test_only_what_can_be_done_here_is_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = asked(tmp_path, {**FULL, "devices": 2})
    found = plan_of(spec, 8)
    monkeypatch.setattr(fits, "find_spec", lambda name: None)
    names = {
        name
        for change in planned_changes_until_fit(found)
        for name in change.settings.get("training", {})
    }
    assert not names & {"optim", "load_in", "use_liger_kernel", "fsdp"}


def test_a_run_that_is_taken_up_keeps_its_changes(tmp_path: Path) -> None:
    spec = asked(tmp_path, {**FULL, "lora": {}})
    said: list[str] = []
    first = MemoryFitting(True, 24 * GIB, said.append)
    made = first.settings_that_fit(spec, filled(spec), ())
    again = MemoryFitting(False, None, said.append)
    assert (
        again.settings_that_fit(
            spec, filled(spec), json.loads(json.dumps(first.changes_as_plain_values()))
        )
        == made
        != spec
    )
    assert said[: len(said) // 2] == said[len(said) // 2 :]


def test_the_end_of_memory_is_known() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 55, dtype=torch.uint8)
    assert is_out_of_memory_error(caught.value)
    assert is_out_of_memory_error(
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    )
    assert is_out_of_memory_error(MemoryError())
    assert not is_out_of_memory_error(RuntimeError("shapes do not match"))


class Small(TrainerCallback):
    """A machine on which no batch of more than so many tokens fits, from a step on: a real allocation fails."""

    def __init__(self, tokens: int, step: int) -> None:
        self.tokens, self.step = tokens, step
        self.models: list[weakref.ref[Any]] = []
        self.left: list[bool] = []

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **parts: Any
    ) -> None:
        self.left = [known() is not None for known in self.models]
        self.models.append(weakref.ref(model))

        def forward(module: Any, args: Any, kwargs: Any) -> None:
            if (
                module.training
                and state.global_step >= self.step
                and kwargs["input_ids"].numel() > self.tokens
            ):
                torch.empty(1 << 55, dtype=torch.uint8)

        model.register_forward_pre_hook(forward, with_kwargs=True)


class Said(PlainListener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run of 6 steps of 4 rows of about 70 tokens."""
    folder = tmp_path_factory.mktemp("run")
    tiny.model().save_pretrained(folder / "model")
    tiny.tokenizer().save_pretrained(folder / "model")
    (folder / "rows.jsonl").write_text(
        "\n".join(json.dumps(row) for row in tiny.chats(24, turns=2))
    )
    training = {
        "num_train_epochs": 1,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "save_steps": 2,
        "logging_steps": 1,
        "val_size": 0,
        "optim": "sgd",
        "learning_rate": 0.1,
    }
    return {
        "model": str(folder / "model"),
        "tokenizer": str(folder / "model"),
        "data": [str(folder / "rows.jsonl")],
        "max_length": 256,
        "rehearsal": False,
        "watch": {"prompts": 0},
        "encode": {"packing": "none"},
        "training": training,
        "fail_on": "error",
        "ignore": ["stop-ids-incomplete"],
    }


def test_memory_that_runs_out_is_told_with_what_to_change(
    run: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        truetune.train(
            **run, out=tmp_path / "out", listener=Said(), callbacks=[Small(200, 2)], force=True
        )
    first, *lines = str(caught.value).splitlines()
    assert "memory ran out in step 3, with a batch of 4 x " in first
    assert "weights 0.00" in first
    assert "can't allocate memory" in first
    assert "       training.per_device_train_batch_size: 1" in lines
    assert "       training.gradient_accumulation_steps: 4" in lines
    assert caught.value.__context__ is None or not caught.value.__context__.__traceback__


def losses(folder: Path) -> dict[int, float]:
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return {entry["step"]: entry["loss"] for entry in history if "loss" in entry}


def test_fit_goes_on_with_smaller_batches_from_the_last_checkpoint(
    run: dict[str, Any], tmp_path: Path
) -> None:
    whole = truetune.train(**run, out=tmp_path / "whole", listener=Said(), force=True)
    said = Said()
    small = Small(200, 3)
    done = truetune.train(
        **run, out=tmp_path / "out", listener=said, callbacks=[small], force=True, fit=True
    )
    assert small.left == [False], "the first model is still held"
    assert done.steps == whole.steps == 6
    record = json.loads((done.folder / "run.json").read_text())
    assert [change["settings"] for change in record["fitted"]] == [
        {"training": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}}
    ]
    assert "continuing from checkpoint-2" in said.lines
    starts = [line.partition(",")[0].partition(";")[0] for line in said.lines]
    assert starts.index("memory ran out in step 4") < starts.index(
        "fit: 1 row at a time instead of 4"
    )
    assert losses(done.folder) == pytest.approx(losses(whole.folder), abs=2e-6)
