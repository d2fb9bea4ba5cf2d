"""Words that a project added to a published tokenizer, and the words of the rows that they cut."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer

from tests.parts.lay_out import tokenizer_folder
from truetune.checks.check_data import check
from truetune.settings.run_spec import RunSpec

SENTENCES = (
    "The port of Rotterdam reported that transports of important goods were supported.",
    "An airport exports passports; a report on the portal said so.",
    "Opportunities are proportional to what the porter imports.",
)
COMPOUNDS = (
    "Der Port ist offen, die Ports sind offen.",
    "Port and ports are open, a porting is planned.",
    "Which port is it? The port of the server.",
)


def tokenizer_with(folder: Path, name: str, added: AddedToken) -> Path:
    """A published tokenizer with one more token."""
    shutil.copytree(tokenizer_folder(name), folder)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_tokens([added])
    backend.save(str(folder / "tokenizer.json"))
    # The list of the configuration would be one token short, which another rule is about.
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.pop("added_tokens_decoder", None)
    path.write_text(json.dumps(config), encoding="utf-8")
    return folder


def found(folder: Path, tokenizer: Path, sentences: tuple[str, ...]) -> list[str]:
    """What the rule says of chats with these sentences."""
    rows: list[dict[str, Any]] = [
        {
            "messages": [
                {"role": "user", "content": f"Question {n}: {sentence}"},
                {"role": "assistant", "content": sentences[(n + 1) % len(sentences)]},
            ]
        }
        for n in range(12)
        for sentence in (sentences[n % len(sentences)],)
    ]
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    spec = RunSpec(data=(str(data),), tokenizer=str(tokenizer), select=("added-token-cuts-words",))
    return [one.message for one in check(spec).findings]


@pytest.mark.parametrize("name", ["qwen2.5-instruct", "llama3.1-instruct"])
def test_a_word_that_is_added_to_a_large_tokenizer(tmp_path: Path, name: str) -> None:
    """To write and read one takes two seconds: what depends on the token alone is tested on a small one."""
    tokenizer = tokenizer_with(tmp_path / "tokenizer", name, AddedToken("port"))
    assert len(found(tmp_path, tokenizer, SENTENCES)) == 1
    assert found(tmp_path, tokenizer, COMPOUNDS) == []


@pytest.mark.parametrize(
    ("added", "sentences", "count"),
    [
        (AddedToken("port"), SENTENCES, 1),
        (AddedToken("port", single_word=True), SENTENCES, 0),
        (AddedToken("<port>"), SENTENCES, 0),
        (AddedToken("port"), COMPOUNDS, 0),
        (AddedToken("port", special=True), SENTENCES, 0),
    ],
)
def test_a_word_that_is_added(
    tmp_path: Path, added: AddedToken, sentences: tuple[str, ...], count: int
) -> None:
    tokenizer = tokenizer_with(tmp_path / "tokenizer", "smollm2", added)
    assert len(found(tmp_path, tokenizer, sentences)) == count


@pytest.mark.parametrize(
    "name", ["qwen3", "gemma3", "phi4", "mistral-7b-v0.3", "gpt2", "gpt-oss", "phi3.5"]
)
def test_published_tokenizers_cut_no_word(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, tokenizer_folder(name), SENTENCES) == []
