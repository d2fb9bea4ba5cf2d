"""config.json of small models, one for each family."""

from __future__ import annotations

from typing import Any

COMMON = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "vocab_size": 131}
LLAMA = {
    **COMMON,
    "hidden_size": 96,
    "intermediate_size": 224,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
}
GPT2 = {
    **COMMON,
    "n_embd": 96,
    "n_head": 8,
    "n_layer": 2,
    "attn_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
}
HEADS = {"head_dim": 12}
MHA = {name: value for name, value in LLAMA.items() if name != "num_key_value_heads"}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
LATENT = {
    **{
        "num_key_value_heads": 8,
        "q_lora_rank": 32,
        "kv_lora_rank": 24,
        "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 8,
    },
    **{
        "v_head_dim": 20,
        "n_routed_experts": 8,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "head_dim": 8,
    },
}

SHAPES: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "mistral": LLAMA | HEADS,
    "ministral3": LLAMA | HEADS,
    "smollm3": LLAMA,
    "granite": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA | HEADS,
    "exaone4": LLAMA | HEADS,
    "gemma": LLAMA | HEADS,
    "gemma2": LLAMA | HEADS,
    "gemma3_text": LLAMA | HEADS | {"query_pre_attn_scalar": 12},
    "olmo2": LLAMA,
    "olmo3": LLAMA,
    "phi": LLAMA,
    "phi3": LLAMA,
    "glm4": LLAMA | HEADS,
    "stablelm": LLAMA,
    "starcoder2": LLAMA,
    "cohere": LLAMA,
    "cohere2": LLAMA,
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gpt_neox": MHA,
    "falcon": {**COMMON, "hidden_size": 96, "num_attention_heads": 8, "num_hidden_layers": 2},
    "bloom": {**COMMON, "hidden_size": 96, "n_head": 8, "n_layer": 2},
    "opt": {**MHA, "ffn_dim": 224, "word_embed_proj_dim": 96},
    "mixtral": LLAMA | {"num_local_experts": 4},
    "granitemoe": LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "olmoe": LLAMA | {"num_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": (
        LLAMA | EXPERTS | {"shared_expert_intermediate_size": 80, "decoder_sparse_step": 1}
    ),
    "qwen3_moe": LLAMA | HEADS | EXPERTS,
    "deepseek_v2": LLAMA | LATENT,
    "deepseek_v3": LLAMA | LATENT,
    "gpt_oss": LLAMA | HEADS | {"num_local_experts": 4, "num_experts_per_tok": 2},
}
