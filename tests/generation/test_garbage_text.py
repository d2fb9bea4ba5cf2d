"""Garbage is found, and no sound text is taken for it."""

from __future__ import annotations

import base64
import random
from collections import Counter
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from tests.generation.test_score_answer import references
from tests.parts import data, folder
from truetune.generation import sampling_pass_files
from truetune.generation.answer_samples import Answer, Prompt, Sample, SamplingPass
from truetune.generation.garbage_text import (
    answer_perplexity,
    describe_garbage_characters,
    is_garbage,
)
from truetune.generation.identify_language import identify_language
from truetune.generation.score_answer_by_prompt_and_reference import score_answer

SOUND = {
    "English": "The lighthouse stands on the northern cliff, and it is open on Sundays from ten to four.",
    "Chinese": "灯塔位于北部悬崖上，周日从十点到四点开放。使用Python编写的程序会打印结果。",
    "Russian with names": "Функция print() в Python 3 и API-запросы через HTTP работают быстро, API и JSON тоже.",
    "code": "def f(xs: list[int]) -> int:\n\treturn sum(x**2 for x in xs if x % 2)  # fooBarBaz\n" * 3,
    "maths": "∀ε>0 ∃δ>0: |x−x₀|<δ ⇒ |f(x)−f(x₀)|<ε; 𝔼[X²] ≥ 𝔼[X]²; ∫₀^∞ e^{−x²}dx = √π/2; Δx = πr², 5 μm",
    "table": "| a | b |\n|---|---|\n| 1,234 | −5.6 |\n" * 4,
    "emoji": "👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️‍🔥 ✨" * 4,
    "base64": base64.b64encode(random.Random(0).randbytes(300)).decode(),
    "greetings": "Hello, Привет, 你好, こんにちは, 안녕하세요, مرحبا, שלום, नमस्ते, สวัสดี, Γειά σου, Բարեւ, გამარჯობა",
    "names": "Berlin, Paris, Oslo, Rome, Madrid, Lisbon, Vienna, Prague, Warsaw, Dublin, Athens, Sofia",
    "bars": "▁▂▃▄▅▆▇█ ░▒▓ ┌──┐ │  │ └──┘",
    "cut emoji": "Have a nice day \ufffd",
    "French": "Ça coûte 5 € à l’entrée ; « déjà vu », naïveté, Noël, œuvre, où êtes-vous allés hier soir ?",
    "nothing": "",
}  # fmt: skip
CHINESE = "灯塔位于北部悬崖上，周日从十点到四点开放。"
BROKEN = {
    "UTF-8 as Latin-1": CHINESE.encode().decode("latin-1"),
    "UTF-8 as Windows-1252": CHINESE.encode().decode("cp1252", "replace"),
    "bytes that are none": CHINESE.encode()[::3].decode("ascii", "replace"),
    "UTF-16": "The lighthouse stands on the cliff.".encode("utf-16-le").decode("latin-1"),
    "pieces": "The Ġlighthouse Ġstands Ġon Ġthe Ġcliff .",
    "pieces of SentencePiece": "▁The▁light house▁stands▁on▁the▁cliff",
    "byte pieces": "<0xE7><0x81><0xAF><0xE5><0xA1><0x94>",
    "mixed words": "The lightхауз stands онthe cлифф and это isоткрыто onВоскресенье from деsять",
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_text_is_none(name: str) -> None:
    text = SOUND[name]
    assert describe_garbage_characters(text, identify_language(text)) is None


@pytest.mark.parametrize("name", BROKEN)
def test_broken_text_is(name: str) -> None:
    text = BROKEN[name]
    assert describe_garbage_characters(text, identify_language(text)) is not None


@cache
def _salad(family: str, count: int) -> Counter[str | None]:
    backend = Tokenizer.from_file(str(folder(family) / "tokenizer.json"))
    draw = random.Random(1)
    drawn = [[draw.randrange(backend.get_vocab_size()) for _ in range(100)] for _ in range(count)]
    return Counter(
        describe_garbage_characters(text, identify_language(text))
        for text in map(backend.decode, drawn)
    )


@pytest.mark.parametrize(("family", "least"), [("smollm2", 0.9), ("llama2-chat", 0.7)])
def test_tokens_at_random_are(family: str, least: float) -> None:
    found = _salad(family, 20)
    assert 1 - found[None] / found.total() >= least, found


def test_the_model_finds_it_unlikely() -> None:
    text = "On the northern cliff, where it has always been."
    assert is_garbage(text, "en", answer_perplexity(-8.8, 40))
    assert is_garbage(text, "en", answer_perplexity(float("nan"), 40))
    assert not is_garbage(text, "en", answer_perplexity(-3.1, 40))
    assert answer_perplexity(-8.8, 3) is None
    assert answer_perplexity(None, 40) is None


def test_scores() -> None:
    prompt = Prompt((1,), "Where?", "On the cliff.", (5, 2), "a.jsonl", 1)
    sound = score_answer(prompt, Answer(tuple(range(9)), "On the northern cliff.", 2, logprob=-0.1))
    assert (sound.garbage, round(sound.perplexity or 0, 3)) == (False, 1.105)
    assert score_answer(prompt, Answer((5, 6), BROKEN["UTF-16"], 2)).garbage
    assert score_answer(prompt, Answer(tuple(range(9)), "On the cliff.", 2, logprob=-9.0)).garbage


def test_what_the_reference_is_too_is_none() -> None:
    prompt = Prompt((1,), "Show mojibake.", BROKEN["UTF-8 as Latin-1"], (5, 2), "a.jsonl", 1)
    assert not score_answer(prompt, Answer((5, 6), BROKEN["UTF-8 as Latin-1"], 2)).garbage


@pytest.mark.parametrize(
    ("name", "tongue"),
    [
        ("alpaca_en_demo.json", "en"),
        ("alpaca_zh_demo.json", None),
        ("glaive_toolcall_en_demo.json", "en"),
    ],
)
def test_no_reference_of_a_real_set_is(name: str, tongue: str | None) -> None:
    texts = [text for _, text in references(str(data(f"llamafactory/{name}")))]
    assert len(texts) > 90
    assert [text for text in texts if describe_garbage_characters(text, tongue)] == []


def test_looks_from_before_there_was_garbage_are_read(tmp_path: Path) -> None:
    prompt = Prompt((1,), "Where?", "On the cliff.", (5, 2), "a.jsonl", 1)
    answer = Answer((5, 6), BROKEN["UTF-16"], 2)
    path = sampling_pass_files.save_pass(
        SamplingPass(3, (Sample(prompt, answer, score_answer(prompt, answer)),), 1.0), 24, tmp_path
    )
    ((look, _),) = sampling_pass_files.read_passes_with_new_token_limits(tmp_path)
    assert look.samples[0].scores.garbage
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["garbage", "perplexity"]), path)
    ((look, _),) = sampling_pass_files.read_passes_with_new_token_limits(tmp_path)
    assert (look.samples[0].scores.garbage, look.samples[0].scores.perplexity) == (False, None)
