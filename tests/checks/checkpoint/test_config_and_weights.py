"""config.json, adapter_config.json and the index beside the tensors: contradictions are found, and likes are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from tests.checks.pages.checkpoint import findings, write
from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checks.checkpoint.adapter_keys_do_not_match import AdapterKeysDoNotMatch
from truetune.checks.checkpoint.config_describes_another_model import (
    READ_ATTENTION_BIAS,
    TENSORS_OF_LAYERS,
    ConfigDescribesAnotherModel,
)
from truetune.checks.checkpoint.few_tensors_unlike_the_base import FewTensorsUnlikeTheBase
from truetune.checks.checkpoint.label_names_contradict import LabelNamesContradict
from truetune.checks.checkpoint.merge_is_not_base_plus_adapter import (
    MergeIsNotBasePlusAdapter,
)
from truetune.checks.checkpoint.model_settings_differ_from_base import ModelSettingsDifferFromBase
from truetune.checks.checkpoint.new_token_rows_not_trained_or_saved import (
    NewTokenRowsNotTrainedOrSaved,
)
from truetune.checks.checkpoint.resume_state_missing import ResumeStateMissing
from truetune.checks.checkpoint.tensors_missing import TensorsMissing
from truetune.checks.checkpoint.two_sets_of_weights import TwoSetsOfWeights
from truetune.checks.checkpoint.weights_equal_the_base import WeightsEqualTheBase
from truetune.checks.checkpoint.weights_file_broken import WeightsFileBroken
from truetune.checks.rule import Rule

SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 32} | {
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 2, "num_local_experts": 2,
    "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
NORMS = ("model.norm.weight", "model.layers.0.input_layernorm.weight")
Q = "model.layers.{}.self_attn.q_proj"
PAIR = "base_model.model.model.layers.0.self_attn.q_proj"
BIASES = {
    f"model.layers.{i}.self_attn.{part}_proj.bias": {"shape": [16]}
    for i in (0, 1)
    for part in "qkv"
}
QK_NORMS = {
    f"model.layers.{i}.self_attn.{part}_norm.weight": {"shape": [8]}
    for i in (0, 1)
    for part in "qk"
}
MAGNITUDES = {
    f"base_model.model.model.layers.{i}.self_attn.q_proj.lora_magnitude_vector": {"shape": [16]}
    for i in (0, 1)
}
PACKED = {f"{Q.format(0)}.qweight": {"shape": [4, 16]}}
OF_ANOTHER_BASE = {
    f"model.layers.{i}.{part}_proj.weight": {"seed": 3}
    for i in (0, 1)
    for part in (*(f"self_attn.{one}" for one in "qkvo"), "mlp.gate", "mlp.up", "mlp.down")
}
GPTQ = {"quant_method": "gptq", "bits": 4}
HEAD = {"base_model.model.lm_head.weight": {"shape": [64, 16]}}
SCORE = {"score.weight": {"shape": [2, 16]}}
TWO_LABELS = {"id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}}


def _found(rule: type[Rule[Any]], block: dict[str, Any], folder: Path) -> list[str]:
    return [finding.message for finding in findings(rule, yaml.safe_dump(block), folder / "files")]


def _norms(**values: Any) -> dict[str, Any]:
    """Some norms of a model, with these values."""
    return {name: {"shape": [16], **values} for name in NORMS}


CONTRADICTIONS = [
    (ConfigDescribesAnotherModel, {"llama": 3, "config": {"num_hidden_layers": 2}}, "from layer 2 on"),
    (ConfigDescribesAnotherModel, {"llama": 2, "tensors": BIASES}, "never read"),
    (ConfigDescribesAnotherModel, {"llama": 2, "tensors": QK_NORMS}, "never read"),
    (ConfigDescribesAnotherModel, {"llama": 2, "config": {"model_type": "qwen2"}}, "are missing"),
    (ConfigDescribesAnotherModel, {"llama": 2, "config": {"attention_bias": True}}, "are missing"),
    (ConfigDescribesAnotherModel, {"llama": 2, "config": {"quantization_config": GPTQ}}, "plain F32"),
    (
        ConfigDescribesAnotherModel,
        {"llama": 2, "tensors": {f"{Q.format(1)}.weight": {"dtype": "U8"}}},
        "no quantization_config",
    ),
    (AdapterKeysDoNotMatch, {"lora": ["q_proj"], "tensors": MAGNITUDES, "adapter_config": {"use_dora": False}}, "DoRA"),
    (
        AdapterKeysDoNotMatch,
        {"lora": ["q_proj", "k_proj"], "adapter_config": {"target_modules": ["q_proj"]}},
        "k_proj",
    ),
    (AdapterKeysDoNotMatch, {"lora": ["q_proj"], "adapter_config": {"layers_to_transform": [1]}}, "layer 0"),
    (
        AdapterKeysDoNotMatch,
        {
            "lora": ["q_proj"],
            "tensors": {f"{PAIR}.lora_B.bias": {"shape": [16]}},
            "adapter_config": {"lora_bias": False},
        },
        "lora_bias",
    ),
    (TensorsMissing, {"lora": ["q_proj"], "adapter_config": {"use_dora": True}}, "lora_magnitude_vector"),
    (TensorsMissing, {"lora": ["q_proj"], "adapter_config": {"lora_bias": True}}, "lora_B.bias"),
    (LabelNamesContradict, {"llama": 1, "config": TWO_LABELS | {"label2id": {"LABEL_0": 0, "LABEL_1": 1}}}, "LABEL_0"),
    (
        LabelNamesContradict,
        {"llama": 1, "config": TWO_LABELS, "tensors": {"score.weight": {"shape": [3, 16]}}},
        "3 rows",
    ),
    (
        ModelSettingsDifferFromBase,
        {"llama": 1, "config": {"num_attention_heads": 4}, "base": {"llama": 1, "config": {"num_attention_heads": 2}}},
        "num_attention_heads",
    ),
    (
        FewTensorsUnlikeTheBase,
        {"llama": 2, "tensors": {f"{Q.format(1)}.weight": {"seed": 5}}, "base": {"llama": 2}},
        "nothing in common",
    ),
    (
        FewTensorsUnlikeTheBase,
        {"llama": 2, "tensors": {"model.norm.weight": {"add": 3.0}}, "base": {"llama": 2}},
        "4 times as large",
    ),
    *(
        (
            FewTensorsUnlikeTheBase,
            {"llama": 2, "tensors": _norms(fill="one"), "base": {"llama": 2, "tensors": base}},
            said,
        )
        for base, said in ((_norms(fill="zero"), "plus one"), (_norms(fill="one", add=1.0), "minus one"))
    ),
    (
        FewTensorsUnlikeTheBase,
        {"llama": 2, "tensors": {"model.norm.weight": {"add": 1.0}}, "base": {"llama": 2}},
        "plus one",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "block", "said"), CONTRADICTIONS)
def test_contradictions_are_found(
    rule: type[Rule[Any]], block: dict[str, Any], said: str, tmp_path: Path
) -> None:
    messages = _found(rule, block, tmp_path)
    assert messages
    assert said in messages[0]


LIKES = [
    # Layers that predict further tokens stand after those that are counted.
    (ConfigDescribesAnotherModel, {"llama": 3, "config": {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}}),
    (ConfigDescribesAnotherModel, {"llama": 2, "config": {"attention_bias": True}, "tensors": BIASES}),
    (ConfigDescribesAnotherModel, {"llama": 2, "config": {"model_type": "qwen2"}, "tensors": BIASES}),
    (ConfigDescribesAnotherModel, {"llama": 2, "config": {"model_type": "another"}, "tensors": QK_NORMS}),
    (
        ConfigDescribesAnotherModel,
        {"llama": 2, "config": {"quantization_config": GPTQ}, "tensors": PACKED},
    ),
    (
        ConfigDescribesAnotherModel,
        {"llama": 2, "tensors": {"model.layers.0.self_attn.rotary_emb.inv_freq": {"shape": [4]}}},
    ),
    (AdapterKeysDoNotMatch, {"lora": ["q_proj"], "tensors": MAGNITUDES, "adapter_config": {"use_dora": True}}),
    (AdapterKeysDoNotMatch, {"lora": ["q_proj"], "adapter_config": {"layers_to_transform": [0, 1]}}),
    (AdapterKeysDoNotMatch, {"lora": ["q_proj"], "adapter_config": {"target_modules": ".*q_proj"}}),
    (AdapterKeysDoNotMatch, {"lora": ["q_proj"], "adapter_config": {"target_modules": ["self_attn.q_proj"]}}),
    (AdapterKeysDoNotMatch, {"lora": ["q_proj"], "tensors": HEAD, "adapter_config": {"modules_to_save": ["lm_head"]}}),
    (TensorsMissing, {"lora": ["q_proj"], "tensors": MAGNITUDES, "adapter_config": {"use_dora": True}}),
    (LabelNamesContradict, {"llama": 1, "config": TWO_LABELS, "tensors": SCORE}),
    (
        ModelSettingsDifferFromBase,
        {
            "llama": 1,
            "config": {"num_attention_heads": 4},
            "tensors": {f"{Q.format(0)}.weight": {"shape": [32, 16]}},
            "base": {"llama": 1, "config": {"num_attention_heads": 2}},
        },
    ),
    (FewTensorsUnlikeTheBase, {"llama": 2, "tensors": {"lm_head.weight": {"seed": 5}}, "base": {"llama": 2}}),
    (FewTensorsUnlikeTheBase, {"llama": 2, "tensors": {f"{Q.format(1)}.weight": {"add": 0.01}}, "base": {"llama": 2}}),
    (FewTensorsUnlikeTheBase, {"llama": 2, "tensors": _norms(fill="one", add=0.1), "base": {"llama": 2}}),
    # Of another base nearly all is foreign.
    (
        FewTensorsUnlikeTheBase,
        {
            "llama": 2,
            "tensors": OF_ANOTHER_BASE,
            "base": {"llama": 2},
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "block"), LIKES)
def test_likes_are_not_found(rule: type[Rule[Any]], block: dict[str, Any], tmp_path: Path) -> None:
    assert not _found(rule, block, tmp_path)


def test_the_table_of_layers_is_that_of_transformers() -> None:
    """Built on the meta device, which takes a tenth of a second for each; the rest is the import of transformers."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    for model_type, expected in TENSORS_OF_LAYERS.items():
        config = transformers.AutoConfig.for_model(model_type, **SMALL)
        with torch.device("meta"):
            names = transformers.AutoModelForCausalLM.from_config(config).state_dict()
        inside = {name.partition("layers.0.")[2] for name in names if "layers.0." in name}
        judged = {name for name in inside if "self_attn" in name or "norm" in name}
        assert judged == set(expected), model_type
        assert model_type not in READ_ATTENTION_BIAS or hasattr(config, "attention_bias")


def test_tensors_that_the_index_does_not_name(tmp_path: Path) -> None:
    save_file({"a": np.ones(3), "b": np.ones(3)}, tmp_path / "model-00001-of-00001.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    for named, count in ((["a", "b"], 0), (["a"], 1)):
        table = dict.fromkeys(named, "model-00001-of-00001.safetensors")
        index.write_text(json.dumps({"weight_map": table}), encoding="utf-8")
        found = list(WeightsFileBroken(read_checkpoint(tmp_path)).findings())
        assert len(found) == count
    assert "does not name" in found[0].message


def test_an_adapter_beside_merged_weights(tmp_path: Path) -> None:
    folder = write({"lora": ["q_proj"]}, tmp_path / "model")
    assert not list(TwoSetsOfWeights(read_checkpoint(folder)).findings())
    save_file({"a": np.ones(3)}, folder / "model.safetensors")
    (found,) = TwoSetsOfWeights(read_checkpoint(folder)).findings()
    assert "never reads model.safetensors" in found.message


def test_checkpoints_of_a_run(tmp_path: Path) -> None:
    """A state of another step, and weights that are those of the checkpoint before."""
    block = {"llama": 1, "trainer_state": {"global_step": 20, "max_steps": 40}}
    write({**block, "tensors": {"lm_head.weight": {"seed": 1}}}, tmp_path / "checkpoint-20")
    later = write({**block, "trainer_state": {"global_step": 40}}, tmp_path / "checkpoint-40")
    assert not list(WeightsEqualTheBase(read_checkpoint(later)).findings())
    # A copy, with the state of step 20.
    write({**block, "tensors": {"lm_head.weight": {"seed": 1}}}, tmp_path / "checkpoint-30")
    copy = read_checkpoint(tmp_path / "checkpoint-30")
    (equal,) = WeightsEqualTheBase(copy).findings()
    assert "checkpoint-20 bit by bit" in equal.message
    assert (
        "trainer_state.json of step 20" in next(iter(ResumeStateMissing(copy).findings())).message
    )


@pytest.mark.parametrize(("fill", "count"), [("zero", 1), ("random", 0)])
def test_new_tokens_in_a_head_of_its_own(fill: str, count: int, tmp_path: Path) -> None:
    vocabulary = 2000
    rows = {"shape": [vocabulary + 1, 16]}
    head = {**rows, "rows": {vocabulary: 0.0}} if fill == "zero" else rows
    block = {
        "llama": 1,
        "tokens": {"<call>": vocabulary},
        "tensors": {"model.embed_tokens.weight": rows, "lm_head.weight": head},
        "base": {
            "llama": 1,
            "tokens": {},
            "tensors": {
                "model.embed_tokens.weight": {"shape": [vocabulary, 16]},
                "lm_head.weight": {"shape": [vocabulary, 16]},
            },
        },
    }
    assert len(_found(NewTokenRowsNotTrainedOrSaved, block, tmp_path)) == count


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"q_proj": 1.0, "v_proj": 1.0}, None),
        ({"q_proj": 2.0, "v_proj": 2.0}, "2 times, not once"),
        ({"q_proj": 1.0, "v_proj": 0.0}, "was not merged into them"),
        # A training of its own, on the same base.
        ({}, None),
    ],
)
def test_an_adapter_beside_its_merge(
    times: dict[str, float], said: str | None, tmp_path: Path
) -> None:
    base = write({"llama": 2}, tmp_path / "base")
    adapter = load_file(
        write({"lora": ["q_proj", "v_proj"]}, tmp_path / "adapter") / "adapter_model.safetensors"
    )
    weights = load_file(base / "model.safetensors")
    for name, a in adapter.items():
        module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        if name.endswith("lora_A.weight"):
            scale = np.float32(2 * times.get(module.rpartition(".")[2], 0.0))
            weights[f"{module}.weight"] += scale * (adapter[name.replace("lora_A", "lora_B")] @ a)
    if not times:
        rng = np.random.default_rng(0)
        weights = {
            name: value + rng.normal(size=value.shape).astype(np.float32) * np.float32(0.01)
            for name, value in weights.items()
        }
    merged = write({"llama": 2}, tmp_path / "merged")
    save_file(weights, merged / "model.safetensors")
    rule = MergeIsNotBasePlusAdapter(read_checkpoint(merged, base=base))
    found = [finding.message for finding in rule.findings()]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


@pytest.mark.parametrize(
    ("untrained", "trained", "count"),
    [
        ({2: 0.0, 3: 0.0}, [], 2),
        ({3: 1e-6}, [], 1),
        ({2: 0.0, 3: 0.0}, [2, 3], 0),
        # The template writes no <|pad|>, and rows that are drawn by chance may be trained.
        ({1: 0.0}, [], 0),
        ({3: 0.01}, [], 0),
        ({}, [], 0),
    ],
)
def test_template_tokens_that_the_base_never_trained(
    untrained: dict[int, float], trained: list[int], count: int, tmp_path: Path
) -> None:
    rows = {"shape": [2000, 16], "rows": untrained}
    delta = "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta"
    block = {
        "lora": ["q_proj"],
        "tokens": {},
        "adapter_config": {"trainable_token_indices": trained or None},
        "tensors": {delta: {"shape": [len(trained), 16]}} if trained else {},
        "base": {"llama": 1, "tokens": {}, "tensors": {"model.embed_tokens.weight": rows}},
    }
    messages = _found(NewTokenRowsNotTrainedOrSaved, block, tmp_path)
    assert [message[: len(str(count))] for message in messages] == [str(count)] * bool(count)
