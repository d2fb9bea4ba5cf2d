"""Packing: honoured or refused, by a look at the model itself; and the layout of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.auditing.tiny import model as tiny
from truetune.collate import PaddingCollator, PaddingFreeCollator
from truetune.demo import TOKENIZER
from truetune.training.choose_collator import (
    MAX_MASKED_TOKENS,
    CheaperCollator,
    UnpackingCollator,
    choose_collator_by_attention,
    is_padding_free_cheaper,
)
from truetune.training.does_attention_keep_documents_apart import (
    ModelAttention,
    keeps_documents_apart_and_how_known,
    probe_packing_attention,
)
from truetune.training.supervised_token_losses import compute_token_losses

SHAPE = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "head_dim": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MIXED = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}


def model(kind: str, **more: Any) -> Any:
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(kind, **{**SHAPE, "pad_token_id": 0, **more})
    )


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text", "gpt2"])
def test_attention_keeps_documents_apart(kind: str) -> None:
    more = {"n_embd": 32, "n_head": 4, "n_layer": 2} if kind == "gpt2" else {}
    honoured, why = keeps_documents_apart_and_how_known(model(kind, **more))
    assert honoured, why


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_of_any_implementation_that_makes_a_mask(implementation: str) -> None:
    made = tiny()
    made.set_attn_implementation(implementation)
    found = probe_packing_attention(made)
    assert (found.implementation, found.varlen, found.packs) == (implementation, False, True)


@pytest.mark.parametrize(
    ("kind", "more"), [("mamba", {"state_size": 4}), ("bloom", {"n_layer": 2, "n_head": 4})]
)
def test_a_model_that_carries_a_state_or_takes_no_positions_does_not_pack(
    kind: str, more: dict[str, Any]
) -> None:
    found = probe_packing_attention(model(kind, **more))
    assert not found.packs
    assert "packed row" in found.why


def test_looking_changes_nothing() -> None:
    made = tiny().train()
    state = torch.get_rng_state()
    probe_packing_attention(made)
    assert made.training
    assert torch.equal(state, torch.get_rng_state())


def test_rows_of_one_length_are_padded_and_mixed_ones_are_not() -> None:
    assert not is_padding_free_cheaper([256] * 4, 576)
    assert is_padding_free_cheaper([64, 100, 200, 256], 576)
    assert not is_padding_free_cheaper([2048] * 2, 576)
    assert not is_padding_free_cheaper([MAX_MASKED_TOKENS, 10], 4096)


def test_each_batch_gets_the_cheaper_layout() -> None:
    rows = [{"input_ids": [5] * n, "labels": [5] * n} for n in (3, 90, 4, 5)]
    made = CheaperCollator(0, 576)
    assert made(rows)["input_ids"].shape == (1, 102)
    assert made([rows[1], rows[1]])["input_ids"].shape == (2, 90)


def test_packs_are_taken_apart_for_a_model_that_would_mix_them() -> None:
    made = model("mamba", state_size=4).eval()
    pack: dict[str, Any] = {
        "input_ids": np.arange(3, 15),
        "labels": np.arange(3, 15),
        "sources": np.arange(12),
        "seq_lengths": [7, 5],
    }
    alone = [
        {name: pack[name][part] for name in ("input_ids", "labels")}
        for part in (slice(0, 7), slice(7, 12))
    ]
    batch = UnpackingCollator(0)([pack])
    assert batch["input_ids"].tolist() == [[*range(3, 10)], [*range(10, 15), 0, 0]]
    assert batch["sources"].tolist() == [[*range(7)], [*range(7, 12), 0, 0]]
    expected = torch.cat(
        [compute_token_losses(made, PaddingCollator(0)([row])).losses for row in alone]
    )
    assert torch.allclose(compute_token_losses(made, batch).losses, expected, atol=1e-6)
    mixed = compute_token_losses(made, PaddingFreeCollator()([pack])).losses
    assert not torch.allclose(mixed, expected, atol=1e-6)


def test_the_collator_follows_the_attention() -> None:
    made = tiny()
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(str(TOKENIZER))
    kinds = {
        PaddingFreeCollator: ModelAttention("flash_attention_2", True, True, ""),
        CheaperCollator: ModelAttention("sdpa", False, True, ""),
        UnpackingCollator: ModelAttention("sdpa", False, False, ""),
    }
    for kind, attention in kinds.items():
        assert isinstance(choose_collator_by_attention(attention, tokenizer, made), kind)
