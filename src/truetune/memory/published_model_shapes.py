"""A table of the shapes of well-known published models, by name, so that a plan needs no files.

Users name a model of the hub that is not on the machine where they plan. Its matrices follow from a dozen numbers of
its config.json, which stand here for the families that are tuned most. The trade-off: a table grows old, so a name
that is not in it is never guessed, and a plan that was made from it says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class ModelDimensions(NamedTuple):
    """The numbers of a config.json from which the matrices follow."""

    model_type: str
    hidden: int
    mlp: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool = False
    head_dim: int | None = None
    """Where it is not hidden / heads"""
    experts: tuple[int, int, int] | None = None
    """Number of experts, experts for each token, width of an expert"""
    more: Mapping[str, int] = MappingProxyType({})
    """Further fields of a family: shared experts, dense layers at the beginning, ranks of latent attention"""


def _llama_shape(
    hidden: int,
    mlp: int,
    layers: int,
    heads: int,
    kv_heads: int,
    vocabulary: int,
    *,
    tied: bool = False,
) -> ModelDimensions:
    """The dimensions of a model of the Llama family."""
    return ModelDimensions("llama", hidden, mlp, layers, heads, kv_heads, vocabulary, tied)


def _qwen2_shape(
    hidden: int,
    mlp: int,
    layers: int,
    heads: int,
    kv_heads: int,
    vocabulary: int,
    *,
    tied: bool = False,
) -> ModelDimensions:
    """The dimensions of a model of the Qwen2 family."""
    return ModelDimensions("qwen2", hidden, mlp, layers, heads, kv_heads, vocabulary, tied)


def _qwen3_shape(
    hidden: int,
    mlp: int,
    layers: int,
    heads: int,
    kv_heads: int,
    vocabulary: int,
    *,
    tied: bool = False,
) -> ModelDimensions:
    """The dimensions of a model of the Qwen3 family."""
    return ModelDimensions(
        "qwen3", hidden, mlp, layers, heads, kv_heads, vocabulary, tied, head_dim=128
    )


# Shapes that several names share.
LLAMA3_8B = _llama_shape(4096, 14336, 32, 32, 8, 128256)
LLAMA3_70B = _llama_shape(8192, 28672, 80, 64, 8, 128256)
PHI3_MINI = ModelDimensions("phi3", 3072, 8192, 32, 32, 32, 32064)
QWEN2_7B = _qwen2_shape(3584, 18944, 28, 28, 4, 152064)
QWEN2_1_5B = _qwen2_shape(1536, 8960, 28, 12, 2, 151936, tied=True)
QWEN2_0_5B = _qwen2_shape(896, 4864, 24, 14, 2, 151936, tied=True)
QWEN2_14B = _qwen2_shape(5120, 13824, 48, 40, 8, 152064)
QWEN2_32B = _qwen2_shape(5120, 27648, 64, 40, 8, 152064)
QWEN2_72B = _qwen2_shape(8192, 29568, 80, 64, 8, 152064)
DEEPSEEK_V3 = ModelDimensions(
    "deepseek_v3", 7168, 18432, 61, 128, 128, 129280, experts=(256, 8, 2048),
    more=MappingProxyType({
        "n_shared_experts": 1, "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    }),
)  # fmt: skip
SHAPES: Mapping[str, ModelDimensions] = {
    "llama-2-7b": _llama_shape(4096, 11008, 32, 32, 32, 32000),
    "llama-2-13b": _llama_shape(5120, 13824, 40, 40, 40, 32000),
    "llama-2-70b": _llama_shape(8192, 28672, 80, 64, 8, 32000),
    "llama-3-8b": LLAMA3_8B,
    "llama-3-70b": LLAMA3_70B,
    "llama-3.1-8b": LLAMA3_8B,
    "llama-3.1-70b": LLAMA3_70B,
    "llama-3.3-70b": LLAMA3_70B,
    "llama-3.2-1b": _llama_shape(2048, 8192, 16, 32, 8, 128256, tied=True),
    "llama-3.2-3b": _llama_shape(3072, 8192, 28, 24, 8, 128256, tied=True),
    "tinyllama-1.1b": _llama_shape(2048, 5632, 22, 32, 4, 32000),
    "smollm2-135m": _llama_shape(576, 1536, 30, 9, 3, 49152, tied=True),
    "smollm2-360m": _llama_shape(960, 2560, 32, 15, 5, 49152, tied=True),
    "smollm2-1.7b": _llama_shape(2048, 8192, 24, 32, 32, 49152, tied=True),
    "deepseek-r1-distill-llama-8b": LLAMA3_8B,
    "deepseek-r1-distill-llama-70b": LLAMA3_70B,
    "deepseek-r1-distill-qwen-1.5b": _qwen2_shape(1536, 8960, 28, 12, 2, 151936),
    "deepseek-r1-distill-qwen-7b": QWEN2_7B,
    "deepseek-r1-distill-qwen-14b": QWEN2_14B,
    "deepseek-r1-distill-qwen-32b": QWEN2_32B,
    "mistral-7b": ModelDimensions("mistral", 4096, 14336, 32, 32, 8, 32768),
    "zephyr-7b": ModelDimensions("mistral", 4096, 14336, 32, 32, 8, 32000),
    "mistral-nemo": ModelDimensions("mistral", 5120, 14336, 40, 32, 8, 131072, head_dim=128),
    "mistral-small-24b": ModelDimensions("mistral", 5120, 32768, 40, 32, 8, 131072, head_dim=128),
    "mixtral-8x7b": ModelDimensions(
        "mixtral", 4096, 14336, 32, 32, 8, 32000, experts=(8, 2, 14336)
    ),
    "mixtral-8x22b": ModelDimensions(
        "mixtral", 6144, 16384, 56, 48, 8, 32000, experts=(8, 2, 16384)
    ),
    "mixtral-8x22b-instruct": ModelDimensions(
        "mixtral", 6144, 16384, 56, 48, 8, 32768, experts=(8, 2, 16384)
    ),
    "qwen3-30b-a3b": ModelDimensions(
        "qwen3_moe", 2048, 6144, 48, 32, 4, 151936, head_dim=128, experts=(128, 8, 768)
    ),
    "qwen3-235b-a22b": ModelDimensions(
        "qwen3_moe", 4096, 12288, 94, 64, 4, 151936, head_dim=128, experts=(128, 8, 1536)
    ),
    "deepseek-v3": DEEPSEEK_V3,
    "deepseek-r1": DEEPSEEK_V3,
    "olmoe-1b-7b": ModelDimensions("olmoe", 2048, 1024, 16, 16, 16, 50304, experts=(64, 8, 1024)),
    "granite-3.0-1b-a400m": ModelDimensions(
        "granitemoe", 1024, 512, 24, 16, 8, 49155, tied=True, experts=(32, 8, 512)
    ),
    "granite-3.0-3b-a800m": ModelDimensions(
        "granitemoe", 1536, 512, 32, 24, 8, 49155, tied=True, experts=(40, 8, 512)
    ),
    "qwen2-0.5b": QWEN2_0_5B,
    "qwen2-1.5b": QWEN2_1_5B,
    "qwen2-7b": QWEN2_7B,
    "qwen2-72b": QWEN2_72B,
    "qwen2.5-0.5b": QWEN2_0_5B,
    "qwen2.5-1.5b": QWEN2_1_5B,
    "qwen2.5-3b": _qwen2_shape(2048, 11008, 36, 16, 2, 151936, tied=True),
    "qwen2.5-7b": QWEN2_7B,
    "qwen2.5-14b": QWEN2_14B,
    "qwen2.5-32b": QWEN2_32B,
    "qwen2.5-72b": QWEN2_72B,
    "qwen3-0.6b": _qwen3_shape(1024, 3072, 28, 16, 8, 151936, tied=True),
    "qwen3-1.7b": _qwen3_shape(2048, 6144, 28, 16, 8, 151936, tied=True),
    "qwen3-4b": _qwen3_shape(2560, 9728, 36, 32, 8, 151936, tied=True),
    "qwen3-8b": _qwen3_shape(4096, 12288, 36, 32, 8, 151936),
    "qwen3-14b": _qwen3_shape(5120, 17408, 40, 40, 8, 151936),
    "qwen3-32b": _qwen3_shape(5120, 25600, 64, 64, 8, 151936),
    "gemma-2-2b": ModelDimensions("gemma2", 2304, 9216, 26, 8, 4, 256000, True, 256),
    "gemma-2-9b": ModelDimensions("gemma2", 3584, 14336, 42, 16, 8, 256000, True, 256),
    "gemma-2-27b": ModelDimensions("gemma2", 4608, 36864, 46, 32, 16, 256000, True, 128),
    "gemma-3-1b": ModelDimensions("gemma3_text", 1152, 6912, 26, 4, 1, 262144, True, 256),
    "gemma-3-4b": ModelDimensions("gemma3_text", 2560, 10240, 34, 8, 4, 262208, True, 256),
    "gemma-3-12b": ModelDimensions("gemma3_text", 3840, 15360, 48, 16, 8, 262208, True, 256),
    "gemma-3-27b": ModelDimensions("gemma3_text", 5376, 21504, 62, 32, 16, 262208, True, 128),
    "phi-3-mini": PHI3_MINI,
    "phi-3.5-mini": PHI3_MINI,
    "phi-4-mini": ModelDimensions("phi3", 3072, 8192, 32, 24, 8, 200064, tied=True),
    "phi-4": ModelDimensions("phi3", 5120, 17920, 40, 40, 10, 100352),
    "gpt-oss-20b": ModelDimensions(
        "gpt_oss", 2880, 2880, 24, 64, 8, 201088, head_dim=64, experts=(32, 4, 2880)
    ),
    "gpt-oss-120b": ModelDimensions(
        "gpt_oss", 2880, 2880, 36, 64, 8, 201088, head_dim=64, experts=(128, 4, 2880)
    ),
}
"""Name of the hub without its owner and what follows its size -> what its config.json says"""
NAME_ADDITIONS = re.compile(r"(?:^meta-|\b(?:coder|math|instruct|chat|base|pt|it|hf)-)")
"""Parts of names that don't change the shape and may stand before the size"""
OTHER_SHAPE = re.compile(r"(?:vl|omni|audio|vision|(?<!ol)moe|multimodal|draft|eagle)\b")
"""Parts of names of models that have other matrices besides, or others instead"""


def published_config(name: str) -> dict[str, Any] | None:
    """The config.json of the published model of that name, as far as memory depends on it; None if it isn't known.

    Args:
        name: as users write it: `Qwen/Qwen2.5-7B-Instruct`, `unsloth/Meta-Llama-3.1-8B-bnb-4bit`.
    """
    plain = name.rstrip("/").rpartition("/")[2].lower().replace("_", "-")
    # A model with an image encoder has the same name but for a part.
    if OTHER_SHAPE.search(plain):
        return None
    plain = NAME_ADDITIONS.sub("", plain)
    keys = [key for key in SHAPES if plain == key or plain.startswith(f"{key}-")]
    if not keys:
        return None
    # The longest: `qwen2.5-7b` and not `qwen2`.
    return _config_of_dimensions(SHAPES[max(keys, key=len)])


def _config_of_dimensions(shape: ModelDimensions) -> dict[str, Any]:
    """The fields of config.json that a shape stands for."""
    config: dict[str, Any] = {
        "model_type": shape.model_type,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.mlp,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "bfloat16",
    }
    if shape.head_dim is not None:
        config["head_dim"] = shape.head_dim
    if shape.experts is not None:
        count, chosen, width = shape.experts
        config |= {
            "num_local_experts": count,
            "num_experts_per_tok": chosen,
            "moe_intermediate_size": width,
            **shape.more,
        }
    # Without it, attention would be counted as SDPA.
    if shape.model_type == "gemma2":
        config["attn_logit_softcapping"] = 50.0
    return config
