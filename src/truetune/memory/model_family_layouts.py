"""A table of what config.json does not say about an architecture: names of its matrices, norms,
biases, fields left out.

A model type that is not in the table is taken for one like Llama; tests compare each entry with the model that
transformers builds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

Norm = Literal["rms", "rms-fp32", "layer"]
"""rms: computed in float32, scaled in the dtype of its input (Llama); rms-fp32: scaled in float32 (Gemma, OLMo 2);
layer: torch's LayerNorm."""


@dataclass(frozen=True, slots=True)
class Family:
    """One family of decoders: what config.json does not say of its architecture."""

    qkv: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """One name: they are one matrix."""
    out: str = "o_proj"
    up: tuple[str, ...] = ("gate_proj", "up_proj")
    """One name and gated: they are one matrix."""
    down: str = "down_proj"
    gated: bool = True
    kept: int = 1
    """Tensors as wide as the MLP that its activation function keeps for the backward pass"""
    norm: Norm = "rms"
    norm_bias: bool = False
    norms: int = 2
    """Norms as wide as the model in each block"""
    outside: int = 1
    """Norms outside the blocks"""
    qk_norm: Literal["head", "full"] | None = None
    """Norms of queries and keys: one vector for all heads, or one as wide as all of them"""
    concatenates: bool = False
    """Queries are put together of a rotated and a plain part, so that the output of attention is copied once more."""
    biased: frozenset[str] = frozenset()
    """Of qkv, out, up, down, head, router, experts: those with a bias whatever config.json says"""
    unbiased: frozenset[str] = frozenset()
    """Those that `attention_bias` does not mean"""
    tied: bool = False
    """Are the head and the embedding one matrix where config.json does not say?"""
    positions: int | None = None
    """Rows of the learned position embedding beyond max_position_embeddings; None: there is none."""
    parallel: bool = False
    """Attention and MLP read the same residual stream, each through a norm of its own."""
    sinks: bool = False
    """One more parameter for each head"""
    shared_gate: bool = False
    """Shared experts have a gate of their own."""
    targets: tuple[str, ...] = ("q_proj", "v_proj")
    """What peft's LoRA adapts where target_modules is not given"""
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Fields that config.json may leave out, as the model class fills them"""


def _field_defaults(**values: Any) -> Mapping[str, Any]:
    """Values for fields that a family's config.json leaves out."""
    return MappingProxyType(values)


_ALL = frozenset({"qkv", "out", "up", "down"})
# Families by what their modules share; a model type that differs in a field or two replaces these.
_LLAMA = Family()
_GEMMA = Family(norm="rms-fp32", tied=True, defaults=_field_defaults(head_dim=256))
_QWEN2 = Family(biased=frozenset({"qkv"}))
_QWEN3 = Family(qk_norm="head", defaults=_field_defaults(head_dim=128))
_OLMO2 = Family(norm="rms-fp32", qk_norm="full")
_GPT2 = Family(
    qkv=("c_attn",),
    out="c_proj",
    up=("c_fc",),
    down="c_proj",
    gated=False,
    kept=4,
    norm="layer",
    norm_bias=True,
    biased=_ALL,
    tied=True,
    positions=0,
    targets=("c_attn",),
)
_NEOX = Family(
    qkv=("query_key_value",),
    out="dense",
    up=("dense_h_to_4h",),
    down="dense_4h_to_h",
    gated=False,
    norm="layer",
    norm_bias=True,
    biased=_ALL,
    concatenates=True,
    targets=("query_key_value",),
)
# One matrix for queries, keys and values, and one for gate and up.
_PHI3 = Family(qkv=("qkv_proj",), up=("gate_up_proj",), concatenates=True, targets=("qkv_proj",))
_COHERE = Family(norm="layer", norms=1, tied=True)

FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(("llama", "mistral", "ministral", "ministral3", "mixtral", "granite", "granitemoe"), _LLAMA),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), replace(_LLAMA, targets=())),
    # Its default; most files of others say it.
    "smollm3": replace(_LLAMA, tied=True),
    "qwen2": _QWEN2,
    "qwen2_moe": replace(_QWEN2, shared_gate=True),
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    **dict.fromkeys(("qwen3_moe", "exaone4"), replace(_QWEN3, defaults=_field_defaults())),
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, norms=4),
    "gemma3_text": replace(
        _GEMMA, norms=4, qk_norm="head",
        defaults=_field_defaults(head_dim=256, num_attention_heads=8, num_key_value_heads=4, vocab_size=262_208),
    ),
    "olmo2": _OLMO2,
    "olmo3": _OLMO2,
    "olmoe": replace(_OLMO2, norm="rms"),
    "phi3": _PHI3,
    # Its attention_bias means the queries, keys and values alone.
    "glm4": replace(
        _PHI3, qkv=_LLAMA.qkv, norms=4, unbiased=frozenset({"out"}), targets=("q_proj", "v_proj")
    ),
    "phi": Family(
        out="dense", up=("fc1",), down="fc2", gated=False, kept=4, norm="layer", norm_bias=True, norms=1,
        biased=_ALL | {"head"}, concatenates=True, targets=("q_proj", "v_proj", "fc1", "fc2"),
    ),
    "gpt2": _GPT2,
    "gpt_bigcode": replace(_GPT2, kept=1),
    "gpt_neox": replace(_NEOX, parallel=True),
    "falcon": replace(_NEOX, biased=frozenset(), norms=1, tied=True, concatenates=False),
    "bloom": replace(_NEOX, tied=True, outside=2),
    # Positions are counted from 2 on, and ReLU keeps nothing of its own.
    "opt": Family(
        out="out_proj", up=("fc1",), down="fc2", gated=False, kept=0, norm="layer", norm_bias=True, biased=_ALL,
        tied=True, positions=2,
    ),
    "starcoder2": Family(
        up=("c_fc",), down="c_proj", gated=False, norm="layer", norm_bias=True, biased=_ALL, tied=True,
        defaults=_field_defaults(num_key_value_heads=2),
    ),
    "stablelm": Family(norm="layer", norm_bias=True, concatenates=True),
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "gpt_oss": Family(
        biased=frozenset({"qkv", "out", "router", "experts"}), kept=4, norm="rms-fp32", sinks=True,
        defaults=_field_defaults(head_dim=64),
    ),
}  # fmt: skip

ALIASES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model", "dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_kv_heads"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"),
    "max_position_embeddings": ("n_positions", "n_ctx"),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts"),
    "chosen": ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "top_k"),
    "dtype": ("torch_dtype",),
}
"""Other spellings of a field"""
