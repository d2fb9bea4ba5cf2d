"""Which models of transformers keep the documents of a packed row apart, measured with tiny models of each type.

A packed row holds several documents. Attention keeps them apart where the model builds its mask from positions that
restart in each document, or gets their lengths (flash attention). Layers that carry a state from token to token (state
space, linear attention, short convolutions) heed no position at all: they need `seq_idx` or `cu_seq_lens`, and kernels
that follow them. No configuration says which of both a model heeds, so it was measured: the first of two documents
is changed, and the logits of the second must stay (`python -m bench.packing_of_model_types`).

The trade-off: what was measured holds for one release, MEASURED_RELEASE. Models that are not in the tables are not
judged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MEASURED_RELEASE = "5.23.0"
"""Of transformers, on a CPU. The kernels for states run on a GPU alone: for them the measurement puts functions that
split a row at the borders they are given. It shows whether the model hands the borders on, and not whether the kernel
follows them."""


@dataclass(frozen=True, slots=True)
class PackingOfModelType:
    """What a model of one type does with a packed row."""

    mask_follows_positions: bool
    """Its attention keeps documents apart by positions alone, with any implementation of attention"""
    carries_state: bool = False
    """It has layers that pass a state from token to token"""
    hands_borders_on: bool = False
    """It gives `seq_idx` and `cu_seq_lens` to the kernels of these layers"""


_SEPARATES = PackingOfModelType(mask_follows_positions=True)
_IGNORES_POSITIONS = PackingOfModelType(mask_follows_positions=False)
_STATE_WITH_BORDERS = PackingOfModelType(True, carries_state=True, hands_borders_on=True)
_STATE_WITHOUT_BORDERS = PackingOfModelType(True, carries_state=True)

# Sorted by what they do. Those that no one fine-tunes as decoders today (bert, bart, marian ...) are left out.
PACKING_OF_MODEL_TYPES: dict[str, PackingOfModelType] = {
    **dict.fromkeys(
        (
            "apertus", "arcee", "bitnet", "codegen", "cohere", "cohere2", "cohere2_moe", "ctrl", "cwm", "deepseek_v2",
            "deepseek_v3", "diffllama", "doge", "dots1", "ernie4_5", "ernie4_5_moe", "exaone4",
            "exaone_moe", "flex_olmo", "gemma", "gemma2", "gemma3_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite",
            "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "granite", "granitemoe", "granitemoeshared", "helium",
            "hunyuan_v1_dense", "hunyuan_v1_moe", "internlm3", "jetmoe", "llama", "llama4_text",
            "minicpm3", "minimax_m2", "ministral", "ministral3", "mistral", "mixtral", "nanochat", "nemotron", "olmo",
            "olmo2", "olmo3", "olmoe", "persimmon", "phi", "phi3", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
            "seed_oss", "smollm3", "stablelm", "starcoder2", "vaultgemma", "youtu",
        ),
        _SEPARATES,
    ),
    **dict.fromkeys(("afmoe", "biogpt", "bloom", "falcon", "gpt_oss", "mpt", "opt", "xglm"), _IGNORES_POSITIONS),
    **dict.fromkeys(
        (
            "bamba", "falcon_h1", "kimi_linear", "lfm2", "lfm2_moe", "nemotron_h", "olmo_hybrid", "qwen3_5_moe_text",
            "qwen3_5_text", "qwen3_next", "zamba", "zamba2",
        ),
        _STATE_WITH_BORDERS,
    ),
    "granitemoehybrid": PackingOfModelType(False, carries_state=True, hands_borders_on=True),
    **dict.fromkeys(
        ("falcon_mamba", "jamba", "lfm3", "mamba", "mamba2", "minimax", "recurrent_gemma", "rwkv", "xlstm"),
        _STATE_WITHOUT_BORDERS,
    ),
}  # fmt: skip
"""By `model_type` of config.json"""

_TYPE_OF_WRAPPER = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
"""The type of the language model inside of a wrapper for images"""

# The last part of a published name, where no config.json is available.
_TYPE_OF_NAME: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), model_type)
    for pattern, model_type in (
        (r"^gpt-oss", "gpt_oss"),
        (r"^granite-4\.\d-h", "granitemoehybrid"),
        (r"^bamba", "bamba"),
        (r"^falcon-h1", "falcon_h1"),
        (r"^falcon-mamba", "falcon_mamba"),
        (r"^falcon-(7b|40b|180b|rw)", "falcon"),
        (r"jamba", "jamba"),
        (r"^lfm2(\.5)?-[\d.]+b-a[\d.]+b", "lfm2_moe"),
        (r"^lfm2(\.5)?-[\d.]+[bm](?!.*vl)", "lfm2"),
        (r"^mamba-\d.*-hf", "mamba"),
        (r"^mamba-codestral", "mamba2"),
        (r"^(nvidia-)?nemotron-(h|nano-\d+b-v2|3-nano)", "nemotron_h"),
        (r"^qwen3-next|^qwen3-coder-next", "qwen3_next"),
        (r"^qwen3\.[56]-[\d.]+b-a[\d.]+b", "qwen3_5_moe_text"),
        (r"^qwen3\.[56]-[\d.]+b", "qwen3_5_text"),
        (r"^recurrentgemma", "recurrent_gemma"),
        (r"^zamba2", "zamba2"),
        (r"^zamba-", "zamba"),
        (r"^kimi-linear", "kimi_linear"),
        (r"^olmo-hybrid", "olmo_hybrid"),
        (r"^opt-\d", "opt"),
        (r"^bloomz?-\d", "bloom"),
        (r"^mpt-\d", "mpt"),
        (r"^xlstm", "xlstm"),
    )
)


def packed_model_type(config: dict[str, object], name: str) -> str | None:
    """The type of the language model.

    Args:
        config: its config.json; empty where that is not available.
        name: of the model, as settings give it.

    Returns:
        A key of PACKING_OF_MODEL_TYPES; None where the model was not measured or is not known.
    """
    if config:
        model_type = str(config.get("model_type", ""))
        model_type = _TYPE_OF_WRAPPER.get(model_type, model_type)
        return model_type if model_type in PACKING_OF_MODEL_TYPES else None
    last = name.rstrip("/").rpartition("/")[2]
    for pattern, model_type in _TYPE_OF_NAME:
        if pattern.search(last):
            return model_type
    return None
