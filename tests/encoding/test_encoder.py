"""Tokens are placed in their text without the tokenizer's offsets, and labels follow from spans."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import parts
from truetune.data.conversation import Conversation, Origin
from truetune.demo import TOKENIZER
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch, stream_batches
from truetune.render.rendering import Source
from truetune.render.template_probes import alternating_chat, make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec

TEXTS = [
    "", " ", "hello world", "  two  spaces\n\n\tand tabs ", "héllo 日本 👩‍👩‍👧 \u200b", "<|im_end|>x</s><eos>",
    "e\u0301 decomposed", "ﬁ ligature", "🇫🇷" * 5, "a" * 500, "１２３ 123,456.7", "\x00\x01",
]  # fmt: skip
FAMILIES = [
    "qwen3",
    "llama3.1-instruct",
    "gemma3",
    "mistral-7b-v0.3",
    "llama2-chat",
    "phi3",
    "gpt-oss",
    "deepseek-v3",
    "mistral-nemo",
    "smollm2",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_the_tokenizers_and_starts_are_in_order(family: str) -> None:
    encoder = Encoder(load_tokenizer(str(parts.folder(family))).backend)
    encoded = encoder.encode(TEXTS)
    for i, text in enumerate(TEXTS):
        low, high = encoded.offsets[i], encoded.offsets[i + 1]
        assert (
            encoded.ids[low:high].tolist()
            == encoder.backend.encode(text, add_special_tokens=False).ids
        )
        starts = encoded.starts[low:high]
        assert (np.diff(starts) >= 0).all()
        assert len(text) == 0 or (starts < len(text)).all()


@pytest.mark.parametrize("family", ["qwen3", "llama3.1-instruct", "gpt-oss", "gemma3"])
def test_starts_cut_the_text_where_the_tokens_do(family: str) -> None:
    encoder = Encoder(load_tokenizer(str(parts.folder(family))).backend)
    text = "Tokens place themselves: naïve café, 日本語 and <|im_end|> 12345.\n"
    assert unicodedata.is_normalized("NFC", text)
    encoded = encoder.encode([text])
    ends = [*encoded.starts[1:].tolist(), len(text)]
    for id, start, end in zip(encoded.ids.tolist(), encoded.starts.tolist(), ends, strict=True):
        piece = encoder.backend.decode([id], skip_special_tokens=False)
        if "\ufffd" not in piece and end > start:
            assert text[start:end].strip() == piece.strip()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_any_text(texts: list[str]) -> None:
    encoder = Encoder(load_tokenizer(str(TOKENIZER)).backend)
    encoded = encoder.encode(texts)
    for i, text in enumerate(texts):
        ids = encoded.ids[encoded.offsets[i] : encoded.offsets[i + 1]]
        starts = encoded.starts[encoded.offsets[i] : encoded.offsets[i + 1]].tolist()
        assert encoder.vocabulary.bytes(ids).tobytes() == text.encode()
        done = b""
        for id, start in zip(ids.tolist(), starts, strict=True):
            assert start == len(done.decode(errors="ignore"))
            done += encoder.vocabulary.spell(id)


@pytest.mark.parametrize("family", FAMILIES)
def test_supervised_tokens_spell_the_answers_and_their_stops(family: str) -> None:
    tokenizer = load_tokenizer(str(parts.folder(family)))
    made = make_probes(tokenizer, RunSpec())
    answers = ["Yo é 日本!", "bye  bye"]
    row = Conversation(
        Origin("x", 1, 0), "messages", alternating_chat("Hi", answers[0], "ok", answers[1])
    )
    encoded = make_batch([row], made.renderer(), Encoder(tokenizer.backend))
    spelled = ""
    for i, (low, high) in enumerate(zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)):
        learned = encoded.supervised[low:high]
        spelled += tokenizer.backend.decode(
            encoded.ids[low:high][learned].tolist(), skip_special_tokens=False
        )
        stops = encoded.ids[low:high][learned & (encoded.source[low:high] == Source.STOP)]
        assert len(stops) == len(encoded.examples[i].rendering.spans)
        assert set(stops.tolist()) <= {stop.id for stop in made.stops}
        header = encoded.source[low:high] == Source.USER
        assert not (header & learned).any()
    for answer in answers:
        assert answer in spelled


def test_streaming_gives_what_one_batch_gives() -> None:
    tokenizer = load_tokenizer(str(TOKENIZER))
    made = make_probes(tokenizer, RunSpec())
    rows = [
        Conversation(Origin("x", i + 1, i), "messages", alternating_chat(f"q {i}", f"a {i}"))
        for i in range(50)
    ]
    encoder = Encoder(tokenizer.backend)
    whole = make_batch(rows, made.renderer(), encoder)
    parts_ = list(stream_batches(iter(rows), made.renderer(), encoder, size=7))
    assert np.array_equal(np.concatenate([b.ids for b in parts_]), whole.ids)
    assert np.array_equal(np.concatenate([b.supervised for b in parts_]), whole.supervised)
    assert np.array_equal(np.concatenate([b.source for b in parts_]), whole.source)
    assert [r.origin.row for b in parts_ for r in b.rows] == list(range(50))
