"""The right pad for each real family, as it is published and with pad = EOS."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import tokenizers

from tests import parts
from truetune.demo import TOKENIZER
from truetune.render.choose_pad_token import choose_pad_token
from truetune.render.stop_tokens import find_stop_tokens
from truetune.render.template_probes import make_probes
from truetune.render.tokenizer import SpecialToken, Tokenizer, load_tokenizer
from truetune.settings.run_spec import RunSpec

PADS = {
    "llama2-chat": "<unk>",
    "llama3-instruct": "<|reserved_special_token_0|>",
    "llama3.1-instruct": "<|finetune_right_pad_id|>",
    "llama3.2-instruct": "<|finetune_right_pad_id|>",
    "mistral-7b-v0.1": "<unk>",
    "mistral-7b-v0.3": "<unk>",
    "mistral-nemo": "<pad>",
    "qwen2.5-instruct": "<|endoftext|>",
    "qwen3": "<|endoftext|>",
    "qwen3.5": "<|endoftext|>",
    "gemma2": "<pad>",
    "gemma3": "<pad>",
    "gemma4": "<pad>",
    "phi3": "<unk>",
    "phi4": "<|dummy_85|>",
    "deepseek-v3": "<｜▁pad▁｜>",
    "gpt-oss": "<|endoftext|>",
    "smollm2": "<|endoftext|>",
    "gpt2": None,
}


def with_eos_as_pad(tokenizer: Tokenizer) -> Tokenizer:
    return dataclasses.replace(
        tokenizer, special={**tokenizer.special, "pad": tokenizer.special["eos"]}
    )


def demo(*control: str, **special: str) -> Tokenizer:
    """The demo tokenizer with these control tokens and no other."""
    tokenizer = load_tokenizer(str(TOKENIZER))
    backend = tokenizers.Tokenizer(tokenizer.backend.model)
    backend.add_special_tokens(list(control))
    ids: dict[str, Any] = {token: backend.token_to_id(token) for token in special.values()}
    named = {name: SpecialToken(token, ids[token]) for name, token in special.items()}
    return dataclasses.replace(
        tokenizer, backend=backend, special=named, embedding_rows=None, vocabulary=2100
    )


@pytest.mark.parametrize("family", PADS)
def test_the_right_pad(family: str) -> None:
    tokenizer = load_tokenizer(str(parts.folder(family)))
    ends = make_probes(tokenizer, RunSpec()).stops
    pad, reason = choose_pad_token(tokenizer, ends)
    assert (pad.token if pad else None) == PADS[family], reason
    other, reason = choose_pad_token(with_eos_as_pad(tokenizer), ends)
    assert other is None or other.id not in {stop.id for stop in ends}
    assert (other.token if other else None) in (PADS[family], "<|dummy_0|>"), reason


def test_a_stop_of_generation_config_is_no_pad() -> None:
    qwen = load_tokenizer(str(parts.folder("qwen3")))
    qwen = dataclasses.replace(qwen, generation_config={"eos_token_id": [151645, 151643]})
    assert [(s.id, s.origins) for s in find_stop_tokens(qwen)] == [
        (151645, ("tokenizer", "generation_config")),
        (151643, ("generation_config",)),
    ]
    pad, _ = choose_pad_token(qwen, find_stop_tokens(qwen))
    assert pad is not None
    assert pad.token == "<|vision_pad|>"


def test_no_pad_beyond_the_embedding() -> None:
    llama = dataclasses.replace(
        load_tokenizer(str(parts.folder("llama3.1-instruct"))), embedding_rows=128_004
    )
    pad, _ = choose_pad_token(llama, ())
    assert pad is not None
    assert pad.token == "<|reserved_special_token_0|>"


@pytest.mark.parametrize(
    ("control", "special", "pad"),
    [
        (("<eos>", "<unk>", "<pad>"), {"eos": "<eos>", "unk": "<unk>"}, "<pad>"),
        (("<eos>", "<|image_pad|>", "<|extra_7|>"), {"eos": "<eos>"}, "<|extra_7|>"),
        (("<eos>", "<|image_pad|>", "<|fim_pad|>"), {"eos": "<eos>"}, "<|image_pad|>"),
        (("<eos>", "[PAD]", "[padding]"), {"eos": "<eos>", "bos": "[PAD]"}, "[padding]"),
        (("<eos>", "[PAD7]"), {"eos": "<eos>", "pad": "<eos>"}, "[PAD7]"),
        (("<eos>", "<bos>"), {"eos": "<eos>", "bos": "<bos>", "pad": "<eos>"}, None),
    ],
)
def test_preference(control: tuple[str, ...], special: dict[str, str], pad: str | None) -> None:
    tokenizer = demo(*control, **special)
    found, _ = choose_pad_token(tokenizer, find_stop_tokens(tokenizer))
    assert (found.token if found else None) == pad


def test_unk_is_no_pad_where_text_becomes_it() -> None:
    model = tokenizers.models.WordLevel({"<unk>": 0, "</s>": 1, "hi": 2}, unk_token="<unk>")
    tokenizer = demo("<unk>", "</s>", unk="<unk>", eos="</s>")
    backend = tokenizers.Tokenizer(model)
    backend.add_special_tokens(["<unk>", "</s>"])
    words = dataclasses.replace(
        tokenizer, backend=backend, special={"unk": SpecialToken("<unk>", 0)}
    )
    assert choose_pad_token(words, ())[0] is None
