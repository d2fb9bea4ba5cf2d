"""llama.cpp and vLLM: what holds without them, and what holds where they are installed.

They are not installed in CI: `python -m bench.engines` compares them with transformers on a real model.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from truetune.demo import TOKENIZER
from truetune.errors import UsageError
from truetune.generation.answer_samples import Prompt
from truetune.generation.backends import vllm_backend
from truetune.generation.backends.backend import Decoding
from truetune.generation.backends.choose_next_token import (
    choose_token,
    log_softmax,
    reference_ids_before_stop,
    stop_probability_and_best_rank,
)
from truetune.generation.backends.llama_cpp_backend import compare_vocabularies
from truetune.generation.backends.model_source import ModelSource, find_model_source
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.render.tokenizer import Tokenizer, load_tokenizer

WITHOUT = {name: importlib.util.find_spec(name) is None for name in ("llama_cpp", "vllm")}
GGUF = os.environ.get("TRUETUNE_GGUF")
"""A GGUF file with its tokenizer beside it, or `FILE:FOLDER`; such a test runs in a venv with llama_cpp"""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(str(TOKENIZER))


@pytest.fixture
def file(tmp_path: Path) -> ModelSource:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    return find_model_source(str(tmp_path / "model.gguf"), tokenizer=str(TOKENIZER))


@pytest.fixture
def model(tmp_path: Path) -> ModelSource:
    return ModelSource("m", "model", tmp_path, None, TOKENIZER, tmp_path, {}, None)


def words(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.backend.id_to_token(id) or f"[PAD{id}]" for id in range(tokenizer.vocabulary)]


# What is missing


@pytest.mark.skipif(not WITHOUT["llama_cpp"], reason="llama_cpp is installed")
def test_without_llama_cpp_it_says_what_to_install(file: ModelSource, tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="pip install llama-cpp-python"):
        open_backend(file, tokenizer)


@pytest.mark.skipif(not WITHOUT["vllm"], reason="vllm is installed")
def test_without_vllm_it_says_what_to_install(model: ModelSource, tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="pip install vllm"):
        open_backend(model, tokenizer, Options(backend="vllm"))


def test_each_takes_its_own_kind_of_model(
    file: ModelSource, model: ModelSource, tokenizer: Tokenizer
) -> None:
    with pytest.raises(UsageError, match="folder of a model"):
        open_backend(file, tokenizer, Options(backend="vllm"))
    with pytest.raises(UsageError, match=r"\.gguf file"):
        open_backend(model, tokenizer, Options(backend="llama.cpp"))


# The vocabulary of a GGUF file


def test_the_same_vocabulary_is_silent(tokenizer: Tokenizer) -> None:
    assert compare_vocabularies([*words(tokenizer), "[PAD]"], tokenizer, "f.gguf") == []


def test_a_vocabulary_that_is_too_small_is_another_models(tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="another model"):
        compare_vocabularies(words(tokenizer)[:-1], tokenizer, "f.gguf")


def test_a_few_other_spellings_are_a_note(tokenizer: Tokenizer) -> None:
    spelled = words(tokenizer)
    id = next(id for id in range(tokenizer.vocabulary) if id not in tokenizer.control)
    spelled[id] = "other"
    [note] = compare_vocabularies(spelled, tokenizer, "f.gguf")
    assert note.startswith("1 of ")
    assert "'other'" in note


def test_another_control_token_is_an_error(tokenizer: Tokenizer) -> None:
    spelled = words(tokenizer)
    spelled[min(tokenizer.control)] = "<other>"
    with pytest.raises(UsageError, match="'<other>'"):
        compare_vocabularies(spelled, tokenizer, "f.gguf")


def test_many_other_spellings_are_an_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="spelled otherwise"):
        compare_vocabularies(words(tokenizer)[::-1], tokenizer, "f.gguf")


# What vLLM takes of an adapter


@pytest.mark.parametrize(
    "setting",
    [{"modules_to_save": ["lm_head"]}, {"trainable_token_indices": {"embed_tokens": [3]}}, {"use_dora": True},
     {"bias": "all"}, {"peft_type": "IA3"}, {"target_modules": ["q_proj", "embed_tokens"]}],
)  # fmt: skip
def test_an_adapter_that_vllm_can_not_apply_is_refused_before_it_is_loaded(
    setting: dict[str, object], tmp_path: Path, tokenizer: Tokenizer
) -> None:
    import json

    config = {"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"], "bias": "none", **setting}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    place = ModelSource("a", "adapter", tmp_path, tmp_path, TOKENIZER, tmp_path, {}, None)
    with pytest.raises(UsageError, match="truetune merge"):
        open_backend(place, tokenizer, Options(backend="vllm"))


def test_a_plain_adapter_is_taken() -> None:
    assert (
        vllm_backend.unsupported_adapter_settings(
            {"peft_type": "LORA", "r": 8, "bias": "none", "modules_to_save": None}
        )
        == []
    )


@pytest.mark.parametrize(
    ("config", "rank"),
    [
        ({"r": 4}, 8),
        ({"r": 16}, 16),
        ({"r": 17}, 32),
        ({"r": 8, "rank_pattern": {"q_proj": 64}}, 64),
    ],
)
def test_the_rank_that_vllm_is_told_holds_the_largest(config: dict[str, object], rank: int) -> None:
    assert vllm_backend.smallest_allowed_max_lora_rank(config) == rank


def test_a_rank_that_is_too_large_is_an_error() -> None:
    with pytest.raises(UsageError, match="1024"):
        vllm_backend.smallest_allowed_max_lora_rank({"r": 1024})


def test_the_cache_holds_two_sequences() -> None:
    config = {
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
    }
    assert (
        vllm_backend.cpu_cache_bytes_for_two_sequences(config, 16384)
        == 2 * 16384 * 2 * 4 * 32 * 8 * 128
    )
    assert vllm_backend.cpu_cache_bytes_for_two_sequences({}, 16384) == vllm_backend.MIN_CACHE_BYTES


# Logits


def test_greedy_takes_the_likeliest_and_sampling_draws_by_probability() -> None:
    logits = np.log(np.array([0.1, 0.6, 0.3], np.float32))
    random = np.random.default_rng(0)
    assert choose_token(logits, Decoding(frozenset()), random) == 1
    drawn = [
        choose_token(logits, Decoding(frozenset(), temperature=1.0), random) for _ in range(2000)
    ]
    assert np.bincount(drawn) / 2000 == pytest.approx([0.1, 0.6, 0.3], abs=0.05)
    kept = {
        choose_token(logits, Decoding(frozenset(), temperature=1.0, top_p=0.8), random)
        for _ in range(200)
    }
    assert kept == {1, 2}
    assert {
        choose_token(logits, Decoding(frozenset(), temperature=1.0, top_p=0.01), random)
        for _ in range(50)
    } == {1}


@pytest.mark.parametrize(
    ("top_p", "min_p", "kept"),
    [
        (1.0, 0.4, {1, 2}),
        (1.0, 0.6, {1}),
        (1.0, 1.0, {1}),
        (1.0, 0.1, {0, 1, 2}),
        (0.5, 0.1, {1}),
        (0.8, 0.4, {1, 2}),
    ],
)
def test_min_p_leaves_the_tokens_near_the_likeliest(
    top_p: float, min_p: float, kept: set[int]
) -> None:
    logits = np.log(np.array([0.1, 0.6, 0.3], np.float32))
    random = np.random.default_rng(0)
    decoding = Decoding(frozenset(), temperature=1.0, top_p=top_p, min_p=min_p)
    drawn = [choose_token(logits, decoding, random) for _ in range(300)]
    assert set(drawn) == kept
    # At a temperature of 3 the other two are 0.79 and 0.55 times as likely as the likeliest.
    hot = replace(decoding, temperature=3.0, top_p=1.0, min_p=0.7)
    assert {choose_token(logits, hot, random) for _ in range(300)} == {1, 2}


def test_vllm_is_given_all_of_the_decoding() -> None:
    decoding = Decoding(frozenset({7, 2}), temperature=0.7, top_p=0.9, min_p=0.05)
    fields = vllm_backend.sampling_fields(decoding)
    assert (fields["temperature"], fields["top_p"], fields["min_p"]) == (0.7, 0.9, 0.05)
    assert fields["stop_token_ids"] == [2, 7]
    if not WITHOUT["vllm"]:
        made = vllm_backend.import_vllm().SamplingParams(**fields)
        assert made.min_p == 0.05


def test_a_high_temperature_flattens() -> None:
    logits, random = np.array([0.0, 8.0], np.float32), np.random.default_rng(0)
    drawn = [
        choose_token(logits, Decoding(frozenset(), temperature=1e3), random) for _ in range(1000)
    ]
    assert np.mean(drawn) == pytest.approx(0.5, abs=0.06)


def test_the_probability_of_stopping_adds_up_and_the_rank_is_the_best_ones() -> None:
    logits = np.log(np.array([0.5, 0.2, 0.25, 0.05], np.float32))
    probability, rank = stop_probability_and_best_rank(logits, {1, 3})
    assert (round(probability, 6), rank) == (0.25, 2)
    assert np.exp(log_softmax(logits)).sum() == pytest.approx(1.0)


def test_the_reference_is_taken_up_to_its_stop_token() -> None:
    prompt = Prompt((1,), "", "", (5, 9, 6, 9, 9), "f", 1)
    assert reference_ids_before_stop(prompt, {9}) == (5, 9, 6)


# With llama.cpp


@pytest.mark.skipif(
    WITHOUT["llama_cpp"] or not GGUF, reason="needs llama_cpp and TRUETUNE_GGUF; not in CI"
)
def test_llama_cpp_is_consistent_with_itself() -> None:
    name, _, folder = str(GGUF).partition(":")
    place = find_model_source(name, tokenizer=folder or None)
    own = place.prepared().tokenizer
    ids = tuple(own.backend.encode("The capital of France is", add_special_tokens=False).ids)
    with open_backend(place, own) as backend:
        stops = backend.engine.ends  # type: ignore[attr-defined]
        prompts = [Prompt(ids, "", "", (), "f", 1), Prompt((), "", "", (), "f", 2)]
        [answer, nothing] = backend.answers(prompts, Decoding(stops, 6))
        assert answer is not None
        assert len(answer.ids) == 6
        assert answer.stop is None
        assert nothing is None
        assert "1 of 2 prompts" in backend.notes[-1]
        assert backend.answers(prompts[:1], Decoding(stops, 6)) == [answer], "greedy, again"
        [scored] = backend.score([ids + answer.ids], stops) or []
        assert scored.logprobs[len(ids) :].mean() == pytest.approx(answer.logprob, abs=0.05)
        [best] = backend.likeliest([ids], 3) or []
        assert next(iter(best)) == answer.ids[0]
        assert len(best) == 3
        [taught] = backend.answers(
            [replace(prompts[0], reference_ids=answer.ids)], Decoding(stops, 1)
        )
        assert taught is not None
        assert taught.stop_probability is not None
        [ended] = backend.answers(prompts[:1], Decoding(frozenset({answer.ids[2]}), 6))
        assert ended is not None
        assert (ended.ids, ended.stop) == (answer.ids[:2], answer.ids[2])
