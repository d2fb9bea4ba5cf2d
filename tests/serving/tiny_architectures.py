"""Tiny configurations of the architectures whose adapters are tried on real loaders, as transformers saves them."""

from __future__ import annotations

import importlib
from typing import Any

TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
MOE = {"moe_intermediate_size": 64, "num_experts_per_tok": 2}
MLA = {
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "head_dim": 16,
    "num_key_value_heads": 4,
}
MROPE = {"rope_scaling": {"rope_type": "default", "mrope_section": [2, 3, 3]}}
QWEN_VISION = {"depth": 1, "embed_dim": 64, "hidden_size": 64, "num_heads": 2, "patch_size": 14}
CLIP = {
    "model_type": "clip_vision_model",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
SIGLIP = dict(CLIP, model_type="siglip_vision_model")

# class of the model: (class of its configuration, what differs from TEXT)
TEXT_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "LlamaForCausalLM": ("LlamaConfig", {}),
    "MistralForCausalLM": ("MistralConfig", {}),
    "MixtralForCausalLM": ("MixtralConfig", {"num_local_experts": 4}),
    "Qwen2ForCausalLM": ("Qwen2Config", {}),
    "Qwen2MoeForCausalLM": (
        "Qwen2MoeConfig",
        {**MOE, "num_experts": 4, "shared_expert_intermediate_size": 64},
    ),
    "Qwen3ForCausalLM": ("Qwen3Config", {}),
    "Qwen3MoeForCausalLM": ("Qwen3MoeConfig", {**MOE, "num_experts": 4}),
    "Qwen3NextForCausalLM": (
        "Qwen3NextConfig",
        {
            **MOE,
            "num_experts": 4,
            "shared_expert_intermediate_size": 64,
            "num_hidden_layers": 4,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
        },
    ),
    "GemmaForCausalLM": ("GemmaConfig", {}),
    "Gemma2ForCausalLM": ("Gemma2Config", {}),
    "Gemma3ForCausalLM": ("Gemma3TextConfig", {}),
    "PhiForCausalLM": ("PhiConfig", {"num_key_value_heads": 4}),
    "Phi3ForCausalLM": ("Phi3Config", {}),
    "PhimoeForCausalLM": ("PhimoeConfig", {"num_local_experts": 4}),
    "GPT2LMHeadModel": ("GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4}),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", {}),
    "GPTBigCodeForCausalLM": ("GPTBigCodeConfig", {"n_embd": 64, "n_layer": 2, "n_head": 4}),
    "FalconForCausalLM": (
        "FalconConfig",
        {"head_dim": None, "new_decoder_architecture": True, "num_kv_heads": 2},
    ),
    "Starcoder2ForCausalLM": ("Starcoder2Config", {}),
    "BloomForCausalLM": ("BloomConfig", {"n_layer": 2, "n_head": 4}),
    "OPTForCausalLM": ("OPTConfig", {"ffn_dim": 128, "word_embed_proj_dim": 64}),
    "StableLmForCausalLM": ("StableLmConfig", {}),
    "OlmoForCausalLM": ("OlmoConfig", {}),
    "Olmo2ForCausalLM": ("Olmo2Config", {}),
    "Olmo3ForCausalLM": ("Olmo3Config", {}),
    "OlmoeForCausalLM": (
        "OlmoeConfig",
        {"num_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 4},
    ),
    "GraniteForCausalLM": ("GraniteConfig", {}),
    "GraniteMoeForCausalLM": ("GraniteMoeConfig", {"num_local_experts": 4}),
    "GraniteMoeHybridForCausalLM": (
        "GraniteMoeHybridConfig",
        {
            "num_local_experts": 0,
            "shared_intermediate_size": 64,
            "layer_types": ["mamba", "attention"],
            "mamba_n_heads": 8,
            "mamba_d_head": 16,
            "mamba_d_state": 16,
            "mamba_expand": 2,
        },
    ),
    "CohereForCausalLM": ("CohereConfig", {}),
    "Cohere2ForCausalLM": ("Cohere2Config", {}),
    "DeepseekV2ForCausalLM": ("DeepseekV2Config", {**MOE, **MLA}),
    "DeepseekV3ForCausalLM": ("DeepseekV3Config", {**MOE, **MLA}),
    "GlmForCausalLM": ("GlmConfig", {}),
    "Glm4ForCausalLM": ("Glm4Config", {}),
    "Glm4MoeForCausalLM": (
        "Glm4MoeConfig",
        {
            **MOE,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "n_group": 1,
            "topk_group": 1,
        },
    ),
    "SmolLM3ForCausalLM": ("SmolLM3Config", {}),
    "NemotronForCausalLM": ("NemotronConfig", {}),
    "Exaone4ForCausalLM": ("Exaone4Config", {}),
    "Ernie4_5ForCausalLM": ("Ernie4_5Config", {}),
    "SeedOssForCausalLM": ("SeedOssConfig", {}),
    "ApertusForCausalLM": ("ApertusConfig", {}),
    "ArceeForCausalLM": ("ArceeConfig", {}),
    "HunYuanDenseV1ForCausalLM": ("HunYuanDenseV1Config", {}),
    "GptOssForCausalLM": ("GptOssConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "FalconH1ForCausalLM": (
        "FalconH1Config",
        {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16},
    ),
    "Lfm2ForCausalLM": ("Lfm2Config", {"layer_types": ["conv", "full_attention"]}),
    "JambaForCausalLM": (
        "JambaConfig",
        {
            "num_experts": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "mamba_dt_rank": 8,
            "use_mamba_kernels": False,
        },
    ),
}
_VL = {
    "image_token_id": 250,
    "video_token_id": 251,
    "vision_start_token_id": 252,
    "vision_end_token_id": 253,
}
PICTURE_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen2VLForConditionalGeneration": (
        "Qwen2VLConfig",
        {"text_config": {**TEXT, **MROPE}, "vision_config": QWEN_VISION, **_VL},
    ),
    "Qwen2_5_VLForConditionalGeneration": (
        "Qwen2_5_VLConfig",
        {
            "text_config": {**TEXT, **MROPE},
            **_VL,
            "vision_config": {
                **QWEN_VISION,
                "out_hidden_size": 64,
                "intermediate_size": 128,
                "fullatt_block_indexes": [0],
            },
        },
    ),
    "Qwen3VLForConditionalGeneration": (
        "Qwen3VLConfig",
        {
            "text_config": {**TEXT, **MROPE},
            **_VL,
            "vision_config": {
                "depth": 1,
                "hidden_size": 64,
                "num_heads": 2,
                "out_hidden_size": 64,
                "intermediate_size": 128,
                "deepstack_visual_indexes": [0],
            },
        },
    ),
    "Qwen3_5ForConditionalGeneration": (
        "Qwen3_5Config",
        {
            "text_config": {
                **TEXT,
                **MROPE,
                "num_hidden_layers": 4,
                "linear_num_key_heads": 2,
                "linear_num_value_heads": 4,
                "linear_key_head_dim": 16,
                "linear_value_head_dim": 16,
            },
            **_VL,
            "vision_config": {
                "depth": 1,
                "hidden_size": 64,
                "num_heads": 2,
                "out_hidden_size": 64,
                "intermediate_size": 128,
            },
        },
    ),
    "Gemma3ForConditionalGeneration": (
        "Gemma3Config",
        {
            "text_config": TEXT,
            "vision_config": SIGLIP,
            "mm_tokens_per_image": 4,
            "image_token_index": 250,
        },
    ),
    "LlavaForConditionalGeneration": (
        "LlavaConfig",
        {
            "text_config": {**TEXT, "model_type": "llama"},
            "vision_config": CLIP,
            "image_token_index": 250,
        },
    ),
    "LlavaNextForConditionalGeneration": (
        "LlavaNextConfig",
        {
            "text_config": {**TEXT, "model_type": "llama"},
            "vision_config": CLIP,
            "image_token_index": 250,
        },
    ),
    "Mistral3ForConditionalGeneration": (
        "Mistral3Config",
        {
            "text_config": {**TEXT, "model_type": "mistral"},
            "image_token_index": 250,
            "vision_config": {
                "model_type": "pixtral",
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 28,
                "patch_size": 14,
            },
        },
    ),
    "PaliGemmaForConditionalGeneration": (
        "PaliGemmaConfig",
        {
            "text_config": {**TEXT, "model_type": "gemma"},
            "vision_config": {**SIGLIP, "projection_dim": 64},
            "projection_dim": 64,
            "image_token_index": 250,
        },
    ),
    "Idefics3ForConditionalGeneration": (
        "Idefics3Config",
        {
            "text_config": {**TEXT, "model_type": "llama"},
            "image_token_id": 250,
            "vision_config": {
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 28,
                "patch_size": 14,
            },
        },
    ),
    "SmolVLMForConditionalGeneration": (
        "SmolVLMConfig",
        {
            "text_config": {**TEXT, "model_type": "llama"},
            "image_token_id": 250,
            "vision_config": {
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 28,
                "patch_size": 14,
            },
        },
    ),
    "InternVLForConditionalGeneration": (
        "InternVLConfig",
        {
            "text_config": {**TEXT, "model_type": "qwen2"},
            "image_token_id": 250,
            "vision_config": {
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": [28, 28],
                "patch_size": [14, 14],
            },
        },
    ),
    "Gemma4ForConditionalGeneration": (
        "Gemma4Config",
        {
            "text_config": {
                **TEXT,
                "hidden_size_per_layer_input": 16,
                "vocab_size_per_layer_input": 256,
                "num_kv_shared_layers": 0,
                "global_head_dim": 16,
            },
            "image_token_id": 250,
            "audio_token_id": 249,
            "vision_config": {
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "head_dim": 32,
            },
        },
    ),
    "Llama4ForConditionalGeneration": (
        "Llama4Config",
        {
            "image_token_index": 250,
            "text_config": {**TEXT, "num_local_experts": 4, "intermediate_size_mlp": 128},
            "vision_config": {
                "hidden_size": 64,
                "intermediate_size": 256,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 28,
                "patch_size": 14,
                "vision_output_dim": 64,
                "projector_input_dim": 64,
                "projector_output_dim": 64,
            },
        },
    ),
}


def make_config(architecture: str) -> Any:
    """The tiny configuration of an architecture, with its name in it."""
    transformers = importlib.import_module("transformers")
    if architecture in TEXT_MODELS:
        name, other = TEXT_MODELS[architecture]
        merged = {**TEXT, **other}
        # None: the class of the configuration computes it, and takes none.
        config = getattr(transformers, name)(
            **{key: value for key, value in merged.items() if value is not None}
        )
    else:
        name, other = PICTURE_MODELS[architecture]
        config = getattr(transformers, name)(**other)
    config.architectures = [architecture]
    return config


ALL = (*TEXT_MODELS, *PICTURE_MODELS)
