"""Text that a tokenizer has no token for, in what is learned: of each kind of vocabulary, named or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

import truetune
from tests.parts import folder
from truetune.checks.findings import Finding

WORDS = ("the", "sum", "is", "of", "seven", "and", "five")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PROSE = "the sum is seven"
JSON_LIKE = 'the {"sum": seven}'


def _word_piece() -> Tokenizer:
    vocabulary = ["[UNK]", *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    model = models.WordPiece({word: id for id, word in enumerate(vocabulary)}, unk_token="[UNK]")
    built = Tokenizer(model)
    built.normalizer = normalizers.BertNormalizer()
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return built


def _unigram(*more: str) -> Tokenizer:
    pieces = ["<unk>", *(f"▁{word}" for word in WORDS), "▁", *LETTERS, *more]
    built = Tokenizer(models.Unigram([(piece, -float(id)) for id, piece in enumerate(pieces)], 0))
    built.normalizer = normalizers.Replace(Regex(r"\s+"), " ")
    built.pre_tokenizer = pre_tokenizers.Metaspace()
    return built


def _pairs_without_unknown() -> Tokenizer:
    """BPE on characters that has no unknown token: it drops what it does not know."""
    built = Tokenizer(
        models.BPE({letter: id for id, letter in enumerate(("▁", *LETTERS))}, [], unk_token=None)
    )
    built.pre_tokenizer = pre_tokenizers.Metaspace()
    return built


BUILDERS = {"WordPiece": _word_piece, "Unigram": _unigram, "BPE": _pairs_without_unknown}


def _findings(to: Path, tokenizer: Path, answers: list[str]) -> list[Finding]:
    rows = [{"prompt": "the sum", "completion": f" {answer}"} for answer in answers]
    path = to / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = truetune.check(path, tokenizer=str(tokenizer)).findings
    return [one for one in found if one.code == "LEN010"]


def _save(built: Tokenizer, to: Path, **config: Any) -> Path:
    path = to / "tokenizer"
    path.mkdir()
    built.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", BUILDERS)
def test_each_kind_of_vocabulary(kind: str, tmp_path: Path) -> None:
    tokenizer = _save(BUILDERS[kind](), tmp_path)
    (found,) = _findings(tmp_path, tokenizer, [JSON_LIKE, *[PROSE] * 3])
    assert (found.count, found.total, found.severity) == (1, 4, "warning")
    assert "{" in found.message
    assert not _findings(tmp_path, tokenizer, [PROSE] * 4)


def test_a_rare_sign_is_told_and_no_fault(tmp_path: Path) -> None:
    tokenizer = _save(_unigram(), tmp_path)
    (found,) = _findings(tmp_path, tokenizer, ["the sum is ☂", *[PROSE] * 39])
    assert found.severity == "info"


def test_characters_that_the_vocabulary_has(tmp_path: Path) -> None:
    tokenizer = _save(_unigram(*'{"}:'), tmp_path)
    assert not _findings(tmp_path, tokenizer, [JSON_LIKE] * 4)


def test_an_unknown_token_that_the_corpus_holds(tmp_path: Path) -> None:
    built = _unigram()
    built.add_special_tokens(["<unk>"])
    tokenizer = _save(built, tmp_path, unk_token="<unk>")
    assert not _findings(tmp_path, tokenizer, ["the sum is <unk>"] * 4)


@pytest.mark.parametrize("name", ["smollm2", "llama2-chat"])
def test_vocabularies_with_bytes_spell_all(name: str, tmp_path: Path) -> None:
    assert not _findings(tmp_path, folder(name), [f"{JSON_LIKE} ☂ 𒍅\t\n你好"] * 4)
