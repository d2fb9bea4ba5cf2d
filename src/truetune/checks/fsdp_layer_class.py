"""Finds the class of a model's layers, as FSDP's wrapping policy has to name it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import read_json

LAYER_OF_TYPE: Mapping[str, str] = {
    "llama": "LlamaDecoderLayer",
    "mistral": "MistralDecoderLayer",
    "mixtral": "MixtralDecoderLayer",
    "qwen2": "Qwen2DecoderLayer",
    "qwen2_moe": "Qwen2MoeDecoderLayer",
    "qwen3": "Qwen3DecoderLayer",
    "qwen3_moe": "Qwen3MoeDecoderLayer",
    "gemma": "GemmaDecoderLayer",
    "gemma2": "Gemma2DecoderLayer",
    "gemma3_text": "Gemma3DecoderLayer",
    "phi": "PhiDecoderLayer",
    "phi3": "Phi3DecoderLayer",
    "gpt2": "GPT2Block",
    "gpt_neox": "GPTNeoXLayer",
    "falcon": "FalconDecoderLayer",
    "bloom": "BloomBlock",
    "opt": "OPTDecoderLayer",
    "smollm3": "SmolLM3DecoderLayer",
    "olmo2": "Olmo2DecoderLayer",
}
"""model_type -> the class of transformers (`_no_split_modules` of its model)"""
TYPE_OF_NAME = (
    (re.compile(r"[-_]vl\b|vision|audio|omni|coder-next|qwen3-next|qwen3\.5"), ""),
    (re.compile(r"r1-distill-llama|(?:code|tiny)?llama-?(?!4)|vicuna|smollm2|open_llama"), "llama"),
    (re.compile(r"mixtral"), "mixtral"),
    (re.compile(r"mistral-7b|zephyr-7b|mistral-nemo|mistral-small-24b"), "mistral"),
    (re.compile(r"qwen-?3-\d+b-a\d+b"), "qwen3_moe"),
    (re.compile(r"qwen-?3-[\d.]+b"), "qwen3"),
    (re.compile(r"r1-distill-qwen|qwen-?(?:1\.5|2|2\.5)-(?:\w+-)?[\d.]+b(?!-a)|qwq"), "qwen2"),
    (re.compile(r"gemma-2-"), "gemma2"),
    (re.compile(r"gemma-3-1b|gemma-3-270m"), "gemma3_text"),
    (re.compile(r"gemma-[27]b"), "gemma"),
    (re.compile(r"phi-3(?:\.5)?-m(?:ini|edium)|phi-?4(?!-multi)"), "phi3"),
    (re.compile(r"phi-(?:1|1_5|2)$"), "phi"),
    (re.compile(r"^gpt2"), "gpt2"),
    (re.compile(r"pythia|gpt-neox"), "gpt_neox"),
    (re.compile(r"falcon-(?:7|40|180)b"), "falcon"),
    (re.compile(r"^bloomz?-"), "bloom"),
    (re.compile(r"^opt-"), "opt"),
    (re.compile(r"smollm3"), "smollm3"),
    (re.compile(r"olmo-2-"), "olmo2"),
)
"""Published names -> model_type; the first that fits holds, and an empty one means that it is not known"""


def find_layer_class(model: str, folder: Path) -> str | None:
    """The class of the layers of a model, by the config.json of its folder, else by its published name."""
    config = folder / model / "config.json"
    try:
        kind = read_json(config, SETTINGS).get("model_type") if config.is_file() else None
    except (OSError, ValueError, AttributeError):
        return None
    if kind is None:
        last = model.rstrip("/").rpartition("/")[2].lower()
        kind = next((kind_of_name for name, kind_of_name in TYPE_OF_NAME if name.search(last)), "")
    return LAYER_OF_TYPE.get(str(kind))


def layer_classes_of_other_models(named: str, own: str) -> list[str]:
    """The layer classes that a policy names and that are those of other models than this one.

    Only classes of the table count: a policy may name more than the layers of the text model (an
    image encoder's).
    """
    others = set(LAYER_OF_TYPE.values()) - {own}
    names = (part.strip() for part in named.split(","))
    return [name for name in names if name in others]
