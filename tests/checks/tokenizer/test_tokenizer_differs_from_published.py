"""Published tokenizers are recognised and agree with the table; changed files and another model's are named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import tokenizers

from tests.parts import folder
from truetune.checks.rule import Setup
from truetune.checks.tokenizer.evidence.published_vocabularies import (
    probes_split_otherwise,
    recognise_vocabulary,
    vocabularies_of_model,
)
from truetune.checks.tokenizer.tokenizer_differs_from_published import (
    TokenizerDiffersFromPublished,
)
from truetune.render.template_probes import make_probes
from truetune.render.tokenizer import Tokenizer, load_tokenizer
from truetune.settings.run_spec import RunSpec

PUBLISHED = {
    "llama2-chat": "Llama 2",
    "phi3": "Llama 2",
    "mistral-7b-v0.2": "Mistral 7B",
    "smollm2": "SmolLM2",
    "gpt2": "GPT-2",
}
"""Small files of each kind; all families of tests.parts take ten seconds, and agreed when the table was made"""
MISTRAL = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
CHANGES: dict[str, dict[str, Any]] = {
    "no pattern for digits": {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}},
    "folded characters": {"normalizer": {"type": "NFKC"}},
    "small letters": {"normalizer": {"type": "Lowercase"}},
}  # fmt: skip


def messages(tokenizer: Tokenizer) -> list[str]:
    """What the rule says of a tokenizer."""
    spec = RunSpec(tokenizer=str(tokenizer.folder))
    probes = make_probes(tokenizer, spec)
    setup = Setup(spec=spec, tokenizer=tokenizer, probes=probes)
    return [finding.message for finding in TokenizerDiffersFromPublished(setup).findings()]


@pytest.mark.parametrize(("name", "vocabulary"), PUBLISHED.items())
def test_published_files_agree(name: str, vocabulary: str) -> None:
    tokenizer = load_tokenizer(str(folder(name)))
    recognised = recognise_vocabulary(tokenizer.backend)
    assert recognised is not None
    assert recognised.name == vocabulary
    assert probes_split_otherwise(tokenizer.backend, recognised) == {}
    assert messages(tokenizer) == []


def test_the_vocabulary_of_another_model_of_the_same_size() -> None:
    llama2 = load_tokenizer(str(folder("llama2-chat")))
    (message,) = messages(replace(llama2, model_config=MISTRAL))
    assert "that of Llama 2" in message
    assert "that of Mistral 7B" in message
    mistral = load_tokenizer(str(folder("mistral-7b-v0.2")))
    assert messages(replace(mistral, model_config=MISTRAL)) == []
    # Models of other makers have this type too, and a vocabulary of their own.
    assert messages(replace(llama2, model_config={**MISTRAL, "hidden_size": 2560})) == []


def test_shapes_tell_the_vocabulary() -> None:
    assert vocabularies_of_model(MISTRAL) == {"Mistral 7B"}
    assert vocabularies_of_model({**MISTRAL, "vocab_size": 32768}) == {"Mistral 7B v0.3"}
    assert vocabularies_of_model({**MISTRAL, "vocab_size": 128256}) == frozenset()
    assert vocabularies_of_model({}) == frozenset()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_files(change: dict[str, Any]) -> None:
    tokenizer = load_tokenizer(str(folder("smollm2")))
    edited = {**json.loads(tokenizer.backend.to_str()), **change}
    (message,) = messages(
        replace(tokenizer, backend=tokenizers.Tokenizer.from_str(json.dumps(edited)))
    )
    assert "otherwise than the published tokenizer" in message


def test_own_tokens_are_no_difference() -> None:
    tokenizer = load_tokenizer(str(folder("smollm2")))
    edited = json.loads(tokenizer.backend.to_str())
    mark = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": False,
    }
    edited["added_tokens"] += [{**mark, "id": 49152, "content": "HTTPServer"}]  # fmt: skip
    backend = tokenizers.Tokenizer.from_str(json.dumps(edited))
    assert messages(replace(tokenizer, backend=backend)) == []


def test_a_control_token_with_another_id() -> None:
    tokenizer = load_tokenizer(str(folder("smollm2")))
    edited = json.loads(tokenizer.backend.to_str())
    ids = {"<|im_start|>": 2, "<|im_end|>": 1}
    for token in edited["added_tokens"]:
        token["id"] = ids.get(token["content"], token["id"])
    edited["model"]["vocab"] |= ids
    backend = tokenizers.Tokenizer.from_str(json.dumps(edited))
    (message,) = messages(replace(tokenizer, backend=backend))
    assert "2 control tokens have another id" in message
