"""A fast engine is taken only where it is proved to agree with `tokenizers`."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

import numpy as np
import pytest
import tokenizers

from tests import parts
from truetune.demo import TOKENIZER
from truetune.encoding import proved_tokenizer_engines
from truetune.encoding.encoder import Encoder
from truetune.encoding.proved_tokenizer_engines import (
    Encode,
    EnginesDiffer,
    FlatIds,
    fastest_engine,
    reference_engine,
)
from truetune.encoding.split_at_added_tokens import find_piece_rule
from truetune.render.tokenizer import load_tokenizer

NAMES = {
    **dict.fromkeys(("qwen3", "llama3.1-instruct", "gemma3", "gemma4", "mistral-nemo", "mistral-7b-v0.3"), "gigatoken"),
    **dict.fromkeys(("llama2-chat", "gpt-oss", "deepseek-v3", "phi4"), "gigatoken"),
    "smollm2": "tokenizers",
}  # fmt: skip

NONE = re.compile("(?!)")


def corpus() -> list[str]:
    """Contents of real rows, and characters from everywhere."""
    rows = json.loads(parts.data("llamafactory/alpaca_zh_demo.json").read_text(encoding="utf-8"))[
        :200
    ]
    rows += json.loads(parts.data("llamafactory/alpaca_en_demo.json").read_text(encoding="utf-8"))[
        :200
    ]
    rng = random.Random(1)
    odd = [
        chr(rng.choice([rng.randrange(0x20, 0x3000), rng.randrange(0x10000, 0x20000)]))
        for _ in range(6000)
    ]
    return [row["output"] for row in rows] + [
        "".join(odd[i : i + 20]) for i in range(0, len(odd), 20)
    ]


@pytest.mark.parametrize("family", NAMES)
def test_the_fast_engine_of_a_family_agrees(family: str) -> None:
    backend = load_tokenizer(str(parts.folder(family))).backend
    found = find_piece_rule(backend)
    assert found is not None
    engine = fastest_engine(backend, ["one sample"], found.pattern)
    assert engine.name.split()[0] == NAMES[family]
    texts = [text for text in corpus() if not found.pattern.search(text)]
    fast, slow = engine.encode(texts), reference_engine(backend).encode(texts)
    assert np.array_equal(fast.offsets, slow.offsets)
    assert np.array_equal(fast.ids, slow.ids)


@pytest.mark.parametrize("family", ["qwen3", "llama3.1-instruct"])
def test_the_next_engine_is_as_good(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        proved_tokenizer_engines,
        "_MAKERS",
        {"kitoken": proved_tokenizer_engines._make_kitoken_encode},
    )
    backend = load_tokenizer(str(parts.folder(family))).backend
    encoder = Encoder(backend, characters_before_fast_engine=0)
    encoder.encode(["settle on an engine"])
    assert encoder.engine.name.startswith("kitoken")
    found = encoder.encode(corpus())
    assert np.array_equal(found.ids, Encoder(backend, only_reference=True).encode(corpus()).ids)


def lying(when: Callable[[list[str]], bool]) -> Callable[[tokenizers.Tokenizer], Encode]:
    """An engine that gives another id where `when` says so."""

    def make(backend: tokenizers.Tokenizer) -> Encode:
        truth = reference_engine(backend).encode

        def encode(texts: list[str]) -> FlatIds:
            found = truth(texts)
            return FlatIds(found.ids + 1, found.offsets) if when(texts) else found

        return encode

    return make


def test_an_engine_that_differs_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        proved_tokenizer_engines, "_MAKERS", {"json": lying(lambda texts: "only here" in texts)}
    )
    monkeypatch.setattr(proved_tokenizer_engines.importlib.metadata, "version", lambda name: "0")
    backend = load_tokenizer(str(TOKENIZER)).backend
    assert fastest_engine(backend, ["somewhere"], NONE).name == "json 0"
    assert fastest_engine(backend, ["only here"], NONE).name.startswith("tokenizers")


def test_an_engine_that_differs_later_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        proved_tokenizer_engines, "_MAKERS", {"json": lying(lambda texts: "é" in texts)}
    )
    monkeypatch.setattr(proved_tokenizer_engines, "PROBES", ("plain",))
    monkeypatch.setattr(proved_tokenizer_engines, "_decode_random_pairs", lambda backend: [])
    monkeypatch.setattr(proved_tokenizer_engines.importlib.metadata, "version", lambda name: "0")
    encoder = Encoder(load_tokenizer(str(TOKENIZER)).backend, characters_before_fast_engine=0)
    encoder.encode(["plain text"])
    assert encoder.engine.name == "json 0"
    with pytest.raises(EnginesDiffer, match=r"json 0 and tokenizers .* encode '0' differently"):
        encoder.encode([*map(str, range(500)), "é"])
