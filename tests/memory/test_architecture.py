"""Parameters from config.json are those of the model that transformers builds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.shapes import EXPERTS, LATENT, LLAMA, SHAPES
from truetune.errors import SpecError
from truetune.memory.matrices_and_parameters_from_config import (
    parse_architecture,
    read_architecture,
)
from truetune.memory.model_family_layouts import FAMILIES

NOT_BUILT = {"ministral", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"}
"""Parts of other models, or of the same shape as one that is built here"""


def built(kind: str, **fields: Any) -> Any:
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(kind, **fields)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("kind", sorted(SHAPES))
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "as published"])
def test_parameters_are_exact(kind: str, whole: bool) -> None:
    model = built(kind, **SHAPES[kind])
    config = model.config.to_dict() if whole else model.config.to_diff_dict()
    found = parse_architecture(config)
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.tied == bool(model.config.tie_word_embeddings)


@pytest.mark.parametrize(
    "kind", ["llama", "qwen3_moe", "deepseek_v3", "gpt_oss", "gemma3_text", "mixtral"]
)
def test_full_sizes_are_exact(kind: str) -> None:
    model = built(kind)
    assert parse_architecture(model.config.to_diff_dict()).parameters == sum(
        p.numel() for p in model.parameters()
    )


def test_every_family_is_compared() -> None:
    assert set(FAMILIES) - NOT_BUILT == set(SHAPES)


def test_parts_are_those_of_the_names() -> None:
    model = built("llama", **LLAMA)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    parts = parse_architecture(model.config.to_dict()).parameter_counts_by_part()
    for part, word in (
        ("attention", "self_attn"),
        ("mlp", "mlp"),
        ("head", "lm_head"),
        ("norms", "norm"),
    ):
        assert parts[part] == sum(size for name, size in sizes.items() if word in name)  # type: ignore[index]


PUBLISHED = {
    "Llama 3.1 8B": (8_030_261_248, LLAMA | {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
    }),
    "Qwen2.5 7B": (7_615_616_512, {
        "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
    }),
    "Qwen3 8B": (8_190_735_360, {
        "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
        "tie_word_embeddings": False,
    }),
    "Gemma 2 9B": (9_241_705_984, {
        "model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 256000,
    }),
    "SmolLM2 135M": (134_515_008, {
        "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True,
    }),
}  # fmt: skip
"""As the model cards count them"""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_counts(name: str) -> None:
    count, config = PUBLISHED[name]
    assert parse_architecture(config).parameters == count


def test_gemma_3_leaves_out_fields_of_its_text_config() -> None:
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    inner = {**text, "model_type": "gemma3_text"}
    found = parse_architecture(
        {"model_type": "gemma3", "text_config": inner, "vision_config": {"hidden_size": 0}}
    )
    assert found.parameters == sum(p.numel() for p in built("gemma3_text", **text).parameters())


def test_an_unknown_type_is_taken_for_llama_and_says_so() -> None:
    found = parse_architecture({**LLAMA, "model_type": "newest", "tie_word_embeddings": False})
    assert found.parameters == parse_architecture({**LLAMA, "model_type": "llama"}).parameters
    assert "newest" in found.notes[0]


def test_safetensors_are_counted(tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    (tmp_path / "config.json").write_text(
        json.dumps({**LLAMA, "model_type": "llama"}), encoding="utf-8"
    )
    save_file(
        {"model.embed_tokens.weight": np.zeros((1000, 2000), np.float16)},
        tmp_path / "model.safetensors",
    )
    found = read_architecture(tmp_path)
    assert found.parameters == 2_000_000
    assert "2,000,000" in found.notes[0]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": "llama"},
        {**LLAMA, "hidden_size": "96"},
        {**LLAMA, "hidden_size": -1},
        {**LLAMA, "num_hidden_layers": 10**9},
        {**LLAMA, "vocab_size": 1 << 60},
        {**LLAMA, "vocab_size": True},
    ],
)
def test_a_broken_config_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"config\.json: \w+: "):
        parse_architecture(config)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
)
NAMES = (
    *LLAMA, *EXPERTS, *LATENT, "model_type", "text_config", "vision_config", "layer_types", "sliding_window", "dtype",
    "mlp_only_layers", "decoder_sparse_step", "attention_dropout", "attention_bias", "multi_query", "torch_dtype",
    "sliding_window_pattern", "tie_word_embeddings", "word_embed_proj_dim", "shared_expert_intermediate_size",
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(FAMILIES)), st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4))
def test_whatever_a_config_holds(kind: str, fields: dict[str, Any]) -> None:
    try:
        found = parse_architecture(
            {**LLAMA, "model_type": kind, "max_position_embeddings": 64, **fields}
        )
    except SpecError:
        return
    assert found.parameters >= 0


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_broken_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"config\.json"):
        read_architecture(tmp_path)
