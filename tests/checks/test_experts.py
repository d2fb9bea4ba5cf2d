"""Rules on mixtures of experts: near misses, releases and stacks that decide, and real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checks.checkpoint.adapter_does_not_fit_the_experts import AdapterDoesNotFitTheExperts
from truetune.checks.checkpoint.experts_do_not_fit_config import ExpertsDoNotFitConfig
from truetune.checks.config.adapter_leaves_experts_out import AdapterLeavesExpertsOut
from truetune.checks.config.adapter_trains_the_router import AdapterTrainsTheRouter
from truetune.checks.config.balance_loss_of_experts_missing import BalanceLossOfExpertsMissing
from truetune.checks.log.experts_are_used_unevenly import ExpertsAreUsedUnevenly
from truetune.checks.rule import Rule
from truetune.checks.rule_runner import run_rule
from truetune.checks.source.balance_loss_added_twice import BalanceLossAddedTwice
from truetune.checks.source.balance_loss_never_computed import BalanceLossNeverComputed
from truetune.logs.read_run_log import read_run
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.source.parsed_source_file import parse_module

MODELS: dict[str, dict[str, Any]] = {
    "gpt_oss": {"num_local_experts": 32, "num_experts_per_tok": 4},
    "qwen3_moe": {"num_experts": 128, "num_experts_per_tok": 8},
    "qwen3": {},
    "deepseek_v3": {"n_routed_experts": 64, "n_shared_experts": 2, "first_k_dense_replace": 1},
}
MLP = "[q_proj, v_proj, gate_proj, up_proj, down_proj]"


def messages(rule: type[Rule[Any]], subject: Any) -> list[str]:
    return [finding.message for finding in run_rule(subject, rule).findings]


def settings(folder: Path, model: str, lines: str, requirements: str = "") -> Any:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(
        json.dumps({"model_type": model, **MODELS[model]})
    )
    (folder / "requirements.txt").write_text(requirements)
    path = folder / "sft.yaml"
    # TRL's own default is 0.05.
    dropout = "" if "lora_dropout" in lines else "lora_dropout: 0\n"
    path.write_text(
        f"model_name_or_path: {folder / 'model'}\ndataset_name: some/rows\nmax_length: 512\n"
        f"use_peft: true\n{dropout}{lines}\n"
    )
    return read_config(path)


@pytest.mark.parametrize(
    ("model", "lines", "requirements", "expected"),
    [
        ("gpt_oss", f"lora_target_modules: {MLP}", "", "no expert gets an adapter"),
        ("gpt_oss", "lora_target_modules: [q_proj, v_proj]", "", None),
        ("qwen3_moe", f"lora_target_modules: {MLP}", "", None),
        ("qwen3_moe", f"lora_target_modules: {MLP}", "peft==0.18.1\ntransformers==5.0.0\n", "no expert gets"),
        ("qwen3_moe", f"lora_target_modules: {MLP}", "peft==0.18.1\ntransformers==4.57.3\n", None),
        ("qwen3_moe", "lora_target_modules: all-linear", "peft==0.19.1\n", "no expert gets an adapter"),
        ("qwen3_moe", "lora_target_modules: [up_proj, down_proj]", "", "lacks gate_proj"),
        ("qwen3_moe", r"lora_target_modules: '.*\.(q|gate|up|down)_proj'", "", None),
        ("qwen3_moe", r"lora_target_modules: '.*\.(q|gate|up|down)_proj'", "peft==0.18.0\n", "no expert gets"),
        ("qwen3_moe", f"lora_target_modules: {MLP}\nlora_dropout: 0.1", "", "dropout has no place"),
        ("deepseek_v3", f"lora_target_modules: {MLP}", "", "shared experts and dense layers get no adapter"),
        ("qwen3", f"lora_target_modules: {MLP}", "", None),
        ("gpt_oss", "lora_target_modules: [q_proj]\nlora_target_parameters: [experts.down_proj]", "", None),
        ("gpt_oss", "lora_target_modules: [q_proj]\nlora_target_parameters: [3.mlp.experts.down_proj]", "", None),
        ("gpt_oss", "lora_target_modules: [q_proj]\nlora_target_parameters: [experts.up_proj]", "", "matches no"),
    ],
)  # fmt: skip
def test_what_an_adapter_leaves_out(
    tmp_path: Path, model: str, lines: str, requirements: str, expected: str | None
) -> None:
    found = messages(AdapterLeavesExpertsOut, settings(tmp_path, model, lines, requirements))
    assert (expected is None) == (found == [])
    assert expected is None or expected in found[0]


def test_the_router_is_named_where_it_is_trained(tmp_path: Path) -> None:
    assert messages(
        AdapterTrainsTheRouter,
        settings(tmp_path, "qwen3_moe", "lora_target_modules: all-linear"),
    )


def test_the_router_of_gpt_oss_is_not_reached(tmp_path: Path) -> None:
    assert not messages(
        AdapterTrainsTheRouter, settings(tmp_path, "gpt_oss", "lora_target_modules: all-linear")
    )


@pytest.mark.parametrize(
    ("model", "lines", "is_found"),
    [
        ("deepseek_v3", "router_aux_loss_coef: 0.001", True),
        ("deepseek_v3", "router_aux_loss_coef: 0.0", False),
        ("qwen3_moe", "router_aux_loss_coef: 0.001", False),
        ("qwen3", "router_aux_loss_coef: 0.001", False),
    ],
)
def test_a_factor_that_the_model_does_not_have(
    tmp_path: Path, model: str, lines: str, is_found: bool
) -> None:
    found = messages(BalanceLossOfExpertsMissing, settings(tmp_path, model, lines))
    assert bool(found) is is_found


TWICE = "outputs = model(**inputs, output_router_logits=True)\nloss = outputs.loss\n{line}\nloss.backward()\n"


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        (TWICE.format(line="loss += 0.01 * outputs.aux_loss"), True),
        (TWICE.format(line="loss = loss + coef * outputs.aux_loss.mean()"), True),
        (TWICE.format(line="total = 0.5 * kd + outputs.aux_loss"), False),
        (TWICE.format(line="loss = cross_entropy(outputs.logits, y) + 0.01 * outputs.aux_loss"), False),
        (TWICE.format(line="loss = loss + other.aux_loss"), False),
        ("model.config.router_aux_loss_coef = 0.0\n" + TWICE.format(line="loss += outputs.aux_loss"), False),
        (TWICE.format(line="log(float(outputs.aux_loss))"), False),
        # A model of its own code, whose loss is without the balance
        ("outputs = model(ids, labels=ids)\nloss = outputs.loss + outputs.aux_loss\nloss.backward()\n", False),
    ],
)  # fmt: skip
def test_balance_is_added_twice(code: str, is_found: bool) -> None:
    assert bool(messages(BalanceLossAddedTwice, parse_module(code, "train.py"))) is is_found


COEFFICIENT = """
from transformers import Trainer
model.config.router_aux_loss_coef = {value}
Trainer(model=model).train()
"""


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        (COEFFICIENT.format(value=0.02), True),
        (COEFFICIENT.format(value=0.0), False),
        (COEFFICIENT.format(value=0.02) + "model.config.output_router_logits = True\n", False),
        (COEFFICIENT.format(value=0.02).replace("Trainer", "SFTTrainer"), False),
        ("model.config.router_aux_loss_coef = 0.02\nprint(model(**batch).loss)\n", False),
    ],
)
def test_balance_is_never_computed(code: str, is_found: bool) -> None:
    assert bool(messages(BalanceLossNeverComputed, parse_module(code, "train.py"))) is is_found


def log_of(folder: Path, **curves: Any) -> Any:
    steps = np.arange(1, 61)
    noise = np.random.default_rng(1).normal(0, 0.01, (len(curves), 60))
    history = [
        {"step": int(step), "loss": 2 - step / 100}
        | {name.replace("__", "/"): float(f(step / 60)) + float(noise[i, step - 1])
           for i, (name, f) in enumerate(curves.items())}
        for step in steps
    ]  # fmt: skip
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"log_history": history, "max_steps": 60, "global_step": 60}))
    return read_run(path)


@pytest.mark.parametrize(
    ("curves", "is_found"),
    [
        ({"moe__max_violation": lambda x: 0.5 + 8 * x}, True),
        ({"moe__max_violation": lambda x: 2.5 + 0.8 * x}, False),
        ({"moe__max_violation": lambda x: 0.2 + 0.8 * x}, False),
        ({"router__entropy": lambda x: 2.0 - 1.9 * x}, True),
        ({"policy__entropy": lambda x: 2.0 - 1.9 * x}, False),
        ({"moe__dead_experts": lambda x: 40 * x}, True),
        ({f"moe__expert_{e}_load": (lambda x, e=e: 0.1 + (6 * x if e == 2 else 0)) for e in range(8)}, True),
        ({f"moe__expert_{e}_load": (lambda x, e=e: 0.1 + 0.02 * e) for e in range(8)}, False),
    ],
)  # fmt: skip
def test_routing_collapses(tmp_path: Path, curves: dict[str, Any], is_found: bool) -> None:
    assert bool(messages(ExpertsAreUsedUnevenly, log_of(tmp_path, **curves))) is is_found


def mixtral(folder: Path, experts: int, **config: Any) -> dict[str, Any]:
    values = np.random.default_rng(0)
    tensors: dict[str, Any] = {"model.embed_tokens.weight": values.random((8, 4), np.float32)}
    for layer in (0, 1):
        block = f"model.layers.{layer}.block_sparse_moe"
        tensors[f"{block}.gate.weight"] = values.random((experts, 4), np.float32)
        for expert in range(experts):
            for name in ("w1", "w2", "w3"):
                tensors[f"{block}.experts.{expert}.{name}.weight"] = values.random(
                    (4, 4), np.float32
                )
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "mixtral",
                "num_local_experts": experts,
                "num_hidden_layers": 2,
                **config,
            }
        )
    )
    return tensors


def test_a_whole_mixture_is_fine(tmp_path: Path) -> None:
    save_file(mixtral(tmp_path / "m", 4), tmp_path / "m" / "model.safetensors")
    assert messages(ExpertsDoNotFitConfig, read_checkpoint(tmp_path / "m")) == []


@pytest.mark.parametrize(
    ("dropped", "expected"),
    [
        ("layers.1.block_sparse_moe.experts.2.w2", "experts.2.w2.weight"),
        ("layers.0.block_sparse_moe.gate", "the router of model.layers.0.block_sparse_moe"),
        (".experts.3.", "has 3 experts"),
        (".experts.", "no layer has tensors of experts"),
    ],
)
def test_parts_of_a_mixture_are_missing(tmp_path: Path, dropped: str, expected: str) -> None:
    tensors = mixtral(tmp_path / "m", 4)
    kept = {name: tensor for name, tensor in tensors.items() if dropped not in name}
    save_file(kept, tmp_path / "m" / "model.safetensors")
    assert expected in messages(ExpertsDoNotFitConfig, read_checkpoint(tmp_path / "m"))[0]


def test_copies_of_one_expert_are_found_and_zeros_are_not(tmp_path: Path) -> None:
    tensors = mixtral(tmp_path / "m", 4)
    for name in tensors:
        head, mark, tail = name.partition(".experts.")
        if mark:
            tensors[name] = tensors[f"{head}.experts.0.{tail.partition('.')[2]}"]
    save_file(tensors, tmp_path / "m" / "model.safetensors")
    found = messages(ExpertsDoNotFitConfig, read_checkpoint(tmp_path / "m"))
    assert "have the same values" in found[0]
    zeros = {n: np.zeros_like(t) if ".experts." in n else t for n, t in tensors.items()}
    save_file(zeros, tmp_path / "m" / "model.safetensors")
    assert messages(ExpertsDoNotFitConfig, read_checkpoint(tmp_path / "m")) == []


def test_a_dense_model_is_not_judged(tmp_path: Path) -> None:
    tensors = mixtral(tmp_path / "m", 4, num_local_experts=1)
    save_file(tensors, tmp_path / "m" / "model.safetensors")
    assert run_rule(read_checkpoint(tmp_path / "m"), ExpertsDoNotFitConfig).not_judged


@pytest.mark.parametrize(
    ("parameters", "is_found"),
    [
        (["mlp.experts.gate_up_proj"], False),
        (["mlp.experts.gate_up_proj", "mlp.experts.down_proj"], True),
        # A number means one layer alone.
        (["0.mlp.experts.gate_up_proj", "1.mlp.experts.down_proj"], False),
    ],
)
def test_pairs_that_the_settings_ask_for(
    tmp_path: Path, parameters: list[str], is_found: bool
) -> None:
    module = "base_model.model.model.layers.0.mlp.experts"
    pair = {
        f"{module}.lora_A.weight": np.ones((8, 4), np.float32),
        f"{module}.lora_B.weight": np.ones((6, 8), np.float32),
    }
    save_file(pair, tmp_path / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "r": 2,
        "lora_alpha": 2,
        "target_modules": [],
        "target_parameters": parameters,
    }
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    assert bool(messages(AdapterDoesNotFitTheExperts, read_checkpoint(tmp_path))) is is_found
