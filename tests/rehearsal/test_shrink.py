"""Configurations shrink in their own architecture; what can't becomes a Llama."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM

from truetune.probe import build_miniatures_instead_of_models
from truetune.probe.shrink_config import shrink_config

ARCHITECTURES = ("llama", "qwen3", "gemma3_text", "qwen3_moe", "deepseek_v3", "gpt2", "phi3")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_it_is_small_and_of_its_kind(name: str) -> None:
    config = AutoConfig.for_model(name)
    kinds = set(getattr(config, "layer_types", None) or ())
    vocabulary = config.vocab_size
    shrink_config(config)
    assert config.num_hidden_layers == 2
    assert config.hidden_size <= 128
    assert config.vocab_size == vocabulary
    assert set(getattr(config, "layer_types", None) or ()) == kinds
    config.vocab_size, config.pad_token_id = 100, 0
    config.eos_token_id = config.bos_token_id = 1
    from transformers import AutoModelForCausalLM

    made = AutoModelForCausalLM.from_config(config)
    assert made.config.model_type == name
    assert made(input_ids=torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 100)


def test_heads_keep_their_ratio() -> None:
    config = shrink_config(
        LlamaConfig(
            hidden_size=4096, num_attention_heads=32, num_key_value_heads=8, num_hidden_layers=32
        )
    )
    assert (config.num_attention_heads, config.num_key_value_heads) == (8, 2)
    assert shrink_config(copy.deepcopy(config)).hidden_size == config.hidden_size


def test_rotary_factors_are_cut_to_the_small_heads() -> None:
    """LongRoPE lists a factor for each frequency: uncut, the miniature of Phi-3 would be a Llama."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": [1.0] * 48,
        "long_factor": [2.0] * 48,
        "original_max_position_embeddings": 256,
    }
    config = Phi3Config(
        vocab_size=100,
        hidden_size=768,
        num_attention_heads=8,
        num_key_value_heads=8,
        num_hidden_layers=4,
        max_position_embeddings=1024,
        original_max_position_embeddings=256,
        pad_token_id=0,
        eos_token_id=1,
        rope_parameters=rope,
    )
    made = build_miniatures_instead_of_models.build_miniature(Phi3ForCausalLM, config)
    assert type(made) is Phi3ForCausalLM


class Stubborn(LlamaForCausalLM):
    """An architecture that needs its width."""

    def __init__(self, config: LlamaConfig) -> None:
        if config.hidden_size < 1000:
            raise ValueError("the kernel needs 1024 columns")
        super().__init__(config)


def test_what_cannot_be_shrunk_becomes_a_llama() -> None:
    made = build_miniatures_instead_of_models.build_miniature(
        Stubborn, LlamaConfig(vocab_size=123, hidden_size=1024, eos_token_id=7)
    )
    assert type(made) is LlamaForCausalLM
    assert (made.config.vocab_size, made.config.eos_token_id) == (123, 7)
    assert any(
        "Stubborn can't be shrunk (ValueError: the kernel needs 1024 columns)" in note
        for note in build_miniatures_instead_of_models.notes
    )


def test_the_same_weights_each_time() -> None:
    settings: dict[str, Any] = {"vocab_size": 50, "hidden_size": 512, "num_attention_heads": 8}
    one, two = (
        build_miniatures_instead_of_models.build_miniature(
            LlamaForCausalLM, LlamaConfig(**settings)
        )
        for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
