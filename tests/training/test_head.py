"""Losses of tokens: the model's own, of every kind of head, however the batch is laid out."""

from __future__ import annotations

from typing import Any

import peft
import pytest
import torch
import transformers

from truetune.collate import PaddingCollator, PaddingFreeCollator
from truetune.training.supervised_token_losses import (
    FUSED_FLAG,
    compute_token_losses,
    use_fused_head_where_it_computes,
)

SHAPE = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "output_router_logits": True, "router_aux_loss_coef": 0.1}
HEADS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 8},
    "gemma2": {"head_dim": 8, "final_logit_softcapping": 3.0},
    "gemma3_text": {"head_dim": 8, "final_logit_softcapping": 2.0},
    "mistral": {},
    "phi3": {},
    "granite": {"logits_scaling": 4.0},
    "cohere": {"logit_scale": 0.25},
    "smollm3": {},
    "olmo2": {},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "bloom": {"n_layer": 2, "n_head": 4},
    "mixtral": {"num_local_experts": 4, **EXPERTS},
    "qwen3_moe": {"num_experts": 4, "moe_intermediate_size": 16, "head_dim": 8, **EXPERTS},
}


def model(kind: str = "llama", **more: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**SHAPE, **HEADS[kind], **more})
    made = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for parameter in made.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.3)
    return made.eval()


def rows() -> list[dict[str, Any]]:
    """Three of unequal length; one without any label."""
    drawn = torch.Generator().manual_seed(1)
    made = []
    for length, prompt in ((12, 5), (9, 3), (10, 10)):
        ids = torch.randint(3, 97, (length,), generator=drawn)
        labels = ids.clone()
        labels[:prompt] = -100
        made.append({"input_ids": ids.numpy(), "labels": labels.numpy()})
    return made


def gradients(of: Any, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    of.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in of.named_parameters() if p.grad is not None}


def mean(of: Any, batch: dict[str, Any]) -> torch.Tensor:
    found = compute_token_losses(of, batch)
    return found.losses.mean() + (0 if found.auxiliary is None else found.auxiliary)


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], within: float) -> None:
    assert first.keys() == second.keys()
    assert first
    for name, value in first.items():
        assert torch.allclose(value, second[name], rtol=0, atol=within), name


@pytest.mark.parametrize("kind", HEADS)
def test_losses_and_gradients_are_the_models_own(kind: str) -> None:
    made, batch = model(kind), PaddingCollator(0)(rows())
    own = made(**batch).loss
    ours = mean(made, batch)
    assert abs(own.item() - ours.item()) < 3e-6
    same(gradients(made, own), gradients(made, ours), 1e-6)


def test_a_head_in_16_bits_is_fused() -> None:
    assert use_fused_head_where_it_computes(model("gemma2").to(torch.bfloat16))


@pytest.mark.parametrize("kind", ["llama", "gemma2", "granite", "cohere", "mixtral"])
def test_a_fused_head_gives_the_same(kind: str) -> None:
    made, batch = model(kind), PaddingCollator(0)(rows())
    expected = mean(made, batch)
    before = gradients(made, expected)
    assert use_fused_head_where_it_computes(made)
    found = mean(made, batch)
    assert abs(expected.item() - found.item()) < 3e-6
    same(before, gradients(made, found), 3e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_head_that_cannot_be_fused_stays_as_it_was(dtype: torch.dtype) -> None:
    made, batch = model().to(dtype), PaddingCollator(0)(rows())
    made.config.logit_scale = 0.5
    """Of which Llama's own forward knows nothing, and TRL's does"""
    expected = compute_token_losses(made, batch).losses
    assert not use_fused_head_where_it_computes(made)
    assert FUSED_FLAG not in vars(made)
    assert "forward" not in vars(made)
    assert torch.equal(compute_token_losses(made, batch).losses, expected)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "lm_head"]])
def test_an_adapter_on_any_layer_learns_as_by_the_full_logits(
    targets: Any, checkpointing: bool
) -> None:
    made = peft.get_peft_model(
        model(), peft.LoraConfig(r=4, target_modules=targets, init_lora_weights=False)
    )
    if checkpointing:
        made.gradient_checkpointing_enable({"use_reentrant": False})
        made.train()
    batch = PaddingCollator(0)(rows())
    own = made(**batch, use_cache=False).loss
    expected = gradients(made, own)
    same(expected, gradients(made, mean(made, batch)), 1e-6)
    assert all("lora" in name for name in expected)


def test_documents_of_one_row_have_the_losses_that_they_have_padded() -> None:
    made = model()
    padded, packed = (
        compute_token_losses(made, collate(rows())).losses
        for collate in (PaddingCollator(0), PaddingFreeCollator())
    )
    assert torch.allclose(padded, packed, atol=1e-5)


def test_a_batch_without_labels_has_a_loss_of_zero_with_a_gradient() -> None:
    made, batch = model(), PaddingCollator(0)(rows()[2:])
    found = compute_token_losses(made, batch)
    assert found.losses.shape == found.first.shape == (0,)
    assert all(not bool(g.any()) for g in gradients(made, found.losses.sum()).values())


def test_weights_sources_and_first_tokens_stand_beside_their_losses() -> None:
    given = [
        {
            **row,
            "sources": list(range(len(row["input_ids"]))),
            "loss_weights": [0.5] * len(row["input_ids"]),
        }
        for row in rows()
    ]
    found = compute_token_losses(model(), PaddingCollator(0)(given))
    assert found.sources is not None
    assert found.weights is not None
    assert found.sources.tolist() == [*range(5, 12), *range(3, 9)]
    assert found.weights.tolist() == [0.5] * 13
    assert found.first.tolist() == [i in (0, 7) for i in range(13)]


def test_the_head_is_given_supervised_places_alone() -> None:
    made, seen = model(), []
    made.lm_head.register_forward_hook(
        lambda module, args, output: seen.append(tuple(output.shape))
    )
    compute_token_losses(made, PaddingCollator(0)(rows()))
    assert seen == [(1, 13, 97)]


def test_a_model_without_an_output_embedding_gives_all_logits() -> None:
    made, batch = model(), PaddingCollator(0)(rows())
    expected = compute_token_losses(made, batch).losses
    made.get_output_embeddings = lambda: None
    assert torch.equal(compute_token_losses(made, batch).losses, expected)
