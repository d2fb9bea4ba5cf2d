"""Faults in settings that are otherwise healthy: each is found by its rule, and by no other at that level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.checks.config import found
from tests.checks.config.settings import AXOLOTL, LLAMA_FACTORY, LORA, PEFT, TRL
from truetune.checks.findings import RANK

MODEL = {
    "model/config.json": {"model_type": "llama", "dtype": "bfloat16", "tie_word_embeddings": True}
}
ROWS = {"rows.jsonl": {"rows": 40}}
DPO = {
    **{k: v for k, v in TRL.items() if k != "assistant_only_loss"},
    "beta": 0.1,
    "precompute_ref_log_probs": False,
}
NONE: dict[str, Any] = {}

FAULTS: dict[str, tuple[str, str, str, dict[str, Any], dict[str, Any]]] = {
    "axolotl typo": (
        "unknown-setting", "warning", "did you mean sequence_len",
        {**{k: v for k, v in AXOLOTL.items() if k != "sequence_len"}, "sequnce_len": 2048}, NONE,
    ),
    "typo in a data set": (
        "unknown-setting", "warning", "did you mean roles_to_train",
        {**AXOLOTL, **LORA, "datasets": [{"path": "a/b", "type": "chat_template", "roles_to_trian": ["assistant"]}]},
        NONE,
    ),
    "adapter forgotten": (
        "lora-settings-without-lora", "warning", "lora_r, lora_alpha, lora_target_linear have no effect",
        {**AXOLOTL, **LORA, "adapter": None, "deepspeed": "zero3.json"}, NONE,
    ),
    "rank of no adapter": (
        "lora-settings-without-lora", "warning", "lora_rank", {**LLAMA_FACTORY, "finetuning_type": "full",
                                                               "lora_target": None}, NONE,
    ),
    "trl's old name": (
        "setting-renamed", "warning", "max_length",
        {**{k: v for k, v in TRL.items() if k != "max_length"}, "max_seq_length": 2048}, NONE,
    ),
    "llama-factory's old name": (
        "setting-renamed", "warning", "pref_beta", {**LLAMA_FACTORY, "stage": "dpo", "dpo_beta": 0.1,
                                                    "learning_rate": 5e-6}, NONE,
    ),
    "warm-up by steps": (
        "warmup-longer-than-run", "error", "at most 15 steps",
        {**AXOLOTL, **LORA, "val_set_size": 0, "evals_per_epoch": None, "sample_packing": None, "warmup_ratio": None,
         "warmup_steps": 500, "datasets": [{"path": "rows.jsonl", "type": "chat_template"}]}, {"files": ROWS},
    ),
    "warm-up by share": (
        "warmup-longer-than-run", "warning", "60%", {**LLAMA_FACTORY, "warmup_ratio": 0.6}, NONE,
    ),
    "constant with warm-up": (
        "warmup-ignored-by-schedule", "warning", "0.1", {**LLAMA_FACTORY, "lr_scheduler_type": "constant"}, NONE,
    ),
    "too few rows to pack": (
        "sample-packing-trains-no-step", "error", "38 packed rows",
        {**AXOLOTL, **LORA, "attn_implementation": "sdpa", "micro_batch_size": 64,
         "datasets": [{"path": "rows.jsonl", "type": "chat_template"}]}, {"files": ROWS},
    ),
    "too few tokens to pack": (
        "sample-packing-trains-no-step", "warning", "about 1 packed row",
        {**AXOLOTL, **LORA, "attn_implementation": "sdpa", "micro_batch_size": 2, "sequence_len": 3000,
         "datasets": [{"path": "rows.jsonl", "type": "chat_template"}]}, {"files": {"rows.jsonl": {"rows": 30}}},
    ),
    "never evaluated": (
        "steps-beyond-the-run", "warning", "never evaluated",
        {**LLAMA_FACTORY, "max_steps": 100, "num_train_epochs": None}, NONE,
    ),
    "worst accuracy": (
        "best-model-direction-inverted", "error", "lowest eval_accuracy",
        {**TRL, "metric_for_best_model": "eval_accuracy", "greater_is_better": False}, NONE,
    ),
    "greatest loss": (
        "best-model-direction-inverted", "error", "highest loss",
        {**TRL, "metric_for_best_model": "loss", "greater_is_better": True}, NONE,
    ),
    "save between evaluations": (
        "best-model-cannot-be-picked", "error", "500 is not a multiple of eval_steps 300",
        {**TRL, "eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 300, "save_steps": 500}, NONE,
    ),
    "no rate": ("settings-train-nothing", "error", "rate is 0", {**AXOLOTL, **LORA, "learning_rate": 0}, NONE),
    "all is dropped out": (
        "settings-train-nothing", "error", "lora_dropout", {**AXOLOTL, **LORA, "lora_dropout": 1.0}, NONE,
    ),
    "float16": (
        "bf16-model-run-in-fp16", "warning", "65,504",
        {**LLAMA_FACTORY, "model_name_or_path": "model", "bf16": None, "fp16": True}, {"files": MODEL},
    ),
    "both": ("precision-set-twice", "error", "stops", {**TRL, "fp16": True}, NONE),
    "rows held out for nothing": (
        "setting-overruled", "warning", "held out",
        {**LLAMA_FACTORY, "eval_strategy": "no", "eval_steps": None}, NONE,
    ),
    "dpo at the rate of sft": (
        "learning-rate-far-from-published", "warning", "far above", {**DPO, "learning_rate": 2e-5}, NONE,
    ),
    "dpo of an adapter at the rate of all weights": (
        "learning-rate-far-from-published", "warning", "far below",
        {**LLAMA_FACTORY, "stage": "dpo", "pref_beta": 0.1, "learning_rate": 5e-7}, NONE,
    ),
    "sft at the rate of dpo": (
        "learning-rate-far-from-published", "warning", "far below", {**LLAMA_FACTORY, "learning_rate": 5e-7}, NONE,
    ),
    "negative beta": (
        "preference-beta-out-of-range", "error", "preferred", {**DPO, "learning_rate": 1e-6, "beta": -0.1}, NONE,
    ),
    "large beta": (
        "preference-beta-out-of-range", "warning", "hardly", {**DPO, "learning_rate": 1e-6, "beta": 10.0}, NONE,
    ),
    "reference without its adapter": (
        "dpo-reference-is-not-the-sft-policy", "warning", "no adapter",
        {**LLAMA_FACTORY, "stage": "dpo", "learning_rate": 5e-6, "adapter_name_or_path": "sft",
         "ref_model": "some/model"}, NONE,
    ),
    "another reference": (
        "dpo-reference-is-not-the-sft-policy", "warning", "other/model",
        {**LLAMA_FACTORY, "stage": "dpo", "learning_rate": 5e-6, "finetuning_type": "full",
         "lora_rank": None, "lora_target": None, "ref_model": "other/model"}, NONE,
    ),
    "no comma": (
        "lora-target-fits-nothing", "warning", "did you mean q_proj, v_proj?",
        {**TRL, **PEFT, "learning_rate": 2e-4, "lora_target_modules": ["q_projv_proj", "k_proj"]}, NONE,
    ),
    "not in these weights": (
        "lora-target-fits-nothing", "warning", "gate_up_proj matches no module of the model",
        {**AXOLOTL, **LORA, "base_model": "model", "lora_target_linear": None,
         "lora_target_modules": ["q_proj", "gate_up_proj"]},
        {"files": MODEL, "weights": {"model": {"model.layers.0.self_attn.q_proj.weight": [64, 64]}}},
    ),
    "a pattern of half a name": (
        "lora-target-fits-nothing", "warning", "matches none of 1 modules",
        {**TRL, **PEFT, "learning_rate": 2e-4, "model_name_or_path": "model", "lora_target_modules": "(q|v)_proj"},
        {"files": MODEL, "weights": {"model": {"model.layers.0.self_attn.q_proj.weight": [64, 64]}}},
    ),
    "module to save": (
        "lora-target-fits-nothing", "warning", "did you mean lm_head",
        {**AXOLOTL, **LORA, "lora_modules_to_save": ["embed_tokens", "lm_haed"]}, NONE,
    ),
    "new tokens, head alone": (
        "new-tokens-left-untrained", "warning", "embed_tokens",
        {**AXOLOTL, **LORA, "tokens": ["<call>"], "lora_modules_to_save": ["lm_head"]}, NONE,
    ),
    "one half of a tied pair": (
        "tied-head-trained-alone", "warning", "lm_head",
        {**AXOLOTL, **LORA, "base_model": "model", "lora_modules_to_save": ["lm_head"]}, {"files": MODEL},
    ),
    "a mask without labels": (
        "pretokenized-rows-bypass-masking", "error", "completion_mask",
        {**{k: v for k, v in TRL.items() if k != "assistant_only_loss"}, "dataset_name": "rows.jsonl"},
        {"files": {"rows.jsonl": [{"input_ids": [1, 2], "completion_mask": [0, 1]}]}},
    ),
    "masking of rows that are left as they are": (
        "pretokenized-rows-bypass-masking", "warning", "skip_prepare_dataset",
        {**TRL, "dataset_name": "rows.jsonl", "dataset_kwargs": {"skip_prepare_dataset": True}},
        {"files": {"rows.jsonl": [{"messages": [{"role": "user", "content": "a"}]}]}},
    ),
    "wrapped": (
        "packing-cross-contamination", "warning", "wrapped", {**TRL, "packing": True, "packing_strategy": "wrapped"},
        NONE,
    ),
    "packed with no attention": (
        "packing-cross-contamination", "warning", "attn_implementation is not set",
        {**AXOLOTL, **LORA, "attn_implementation": None}, NONE,
    ),
    "old tokens": (
        "prepared-rows-older-than-data", "warning", "rows.json is newer",
        {**LLAMA_FACTORY, "dataset": "rows", "dataset_dir": "data", "tokenized_path": "tokenized",
         "eval_steps": 20},
        {"files": {"data/dataset_info.json": {"rows": {"file_name": "rows.json"}},
                   "data/rows.json": [{"instruction": "a", "output": "b"}] * 900,
                   "tokenized/dataset_dict.json": {}},
         "ages": {"tokenized/dataset_dict.json": 9000}},
    ),
    "no end": (
        "stop-token-not-trained", "error", "train_on_eos is none",
        {**AXOLOTL, **LORA, "datasets": [{"path": "some/rows", "type": "chat_template", "train_on_eos": "none"}]}, NONE,
    ),
    "the model itself": (
        "output-dir-is-the-model", "error", "the model is loaded from",
        {**TRL, "model_name_or_path": "model", "output_dir": "model"}, {"files": MODEL},
    ),
    "too long": (
        "length-beyond-the-model", "warning", "1,024 positions",
        {**TRL, "model_name_or_path": "model"},
        {"files": {"model/config.json": {"model_type": "gpt2", "n_positions": 1024}}},
    ),
    "listed twice": (
        "dataset-listed-twice-or-also-evaluated", "warning", "one is listed 2",
        {**LLAMA_FACTORY, "dataset": "one,one"}, NONE,
    ),
    "one split": (
        "dataset-listed-twice-or-also-evaluated", "warning", "split train",
        {**TRL, "dataset_test_split": "train"}, NONE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_by_its_rule_alone(name: str, tmp_path: Path) -> None:
    rule, severity, text, config, more = FAULTS[name]
    by_rule = found(tmp_path, config, **more)
    loud = {one for one, findings in by_rule.items() if any(RANK[f.severity] > 0 for f in findings)}
    assert loud == {rule}
    finding = by_rule[rule][0]
    assert (finding.severity, text in finding.message) == (severity, True), finding
    assert finding.cases
    assert any(case.file for case in finding.cases)


def test_a_finding_names_the_line_and_key(tmp_path: Path) -> None:
    case = found(tmp_path, {**TRL, "lr_scheduler_type": "constant"})["warmup-ignored-by-schedule"][
        0
    ].cases[0]
    assert case.file is not None
    line = Path(case.file).read_text(encoding="utf-8").splitlines()[(case.line or 0) - 1]
    assert case.text == line == "lr_scheduler_type: constant"


def test_a_renamed_setting_is_fixed(tmp_path: Path) -> None:
    config = {**{k: v for k, v in TRL.items() if k != "max_length"}, "max_seq_length": 2048}
    fix = found(tmp_path, config)["setting-renamed"][0].fix
    assert fix is not None
    path = Path(fix.file)
    text = path.read_text(encoding="utf-8")
    for edit in fix.edits:
        text = text[: edit.start] + edit.text + text[edit.end :]
    assert text == path.read_text(encoding="utf-8").replace("max_seq_length", "max_length")
    again = tmp_path / "again"
    again.mkdir()
    assert found(again, {**config, "max_length": 2048})["setting-renamed"][0].fix is None
