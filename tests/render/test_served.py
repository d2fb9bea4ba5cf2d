"""The serving contract against transformers, on real tokenizers; and what breaks it."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers

from tests import parts
from truetune.data.conversation import Conversation, Origin
from truetune.demo import TOKENIZER
from truetune.errors import SpecError
from truetune.render.serving_contract import make_serving_contract, verify
from truetune.render.template_probes import load_tokenizer_and_template_of_run
from truetune.settings.run_spec import RunSpec

FAMILIES = ("qwen3", "llama3.1-instruct", "gemma3", "mistral-7b-v0.3", "smollm2", "deepseek-r1")


def contract(folder: Path, rows: tuple[Conversation, ...] = (), **settings: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        json.dumps(
            make_serving_contract(
                load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(folder), **settings)), rows
            )
        )
    )
    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_are_those_of_transformers(family: str) -> None:
    folder = parts.folder(family)
    made = contract(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert len(made["prompts"]) == 17
    for prompt in made["prompts"]:
        given = {"tools": prompt.get("tools"), "add_generation_prompt": True, "return_dict": False}
        if "refused" in prompt:
            with pytest.raises(Exception):  # noqa: B017, PT011 (whatever the template raises)
                tokenizer.apply_chat_template(prompt["messages"], **given)
        else:
            assert prompt["ids"] == tokenizer.apply_chat_template(prompt["messages"], **given), (
                prompt["name"]
            )
    assert made["clock"] is None


def test_the_clock_stands_still(folder: Path) -> None:
    with (folder / "chat_template.jinja").open("a", encoding="utf-8") as template:
        template.write("{{ strftime_now('%d %b %Y') }}")
    made = make_serving_contract(
        load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(folder))),
        now=datetime.datetime(2020, 2, 2),
    )
    assert "02 Feb 2020" in made["prompts"][0]["text"]
    assert made["clock"] == "2020-02-02T00:00:00"
    assert verify(made, folder) == []


def test_prompts_of_rows_end_before_the_last_answer() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Two.", "train": False},
        {"role": "user", "content": "Three?"},
        {"role": "assistant", "content": "Four."},
    ]
    plain = Conversation(
        Origin("a.jsonl", 2, 1), "prompt-completion", prompt="Five?", completion="Six."
    )
    rows = (Conversation(Origin("a.jsonl", 1, 0), "messages", messages), plain)
    chat, text = contract(TOKENIZER, rows)["prompts"][-2:]
    assert [message["content"] for message in chat["messages"]] == ["One?", "Two.", "Three?"]
    assert all("train" not in message for message in chat["messages"])
    assert chat["text"].endswith("Three?<|im_end|>\n<|im_start|>assistant\n")
    assert (text["name"], text["text"], "messages" in text) == ("row 1", "Five?", False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TOKENIZER, tmp_path / "tokenizer"))


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_another_template_breaks_it(folder: Path) -> None:
    made = contract(folder)
    change(folder / "chat_template.jinja", "assistant", "model")
    broken = verify(made, folder)
    assert len(broken) == 17
    assert broken[0].startswith("1 turn: the text is ")
    assert "model" in broken[0]


def test_another_vocabulary_breaks_it(folder: Path) -> None:
    made = contract(folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:50]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    assert any(text.startswith("1 turn: ids ") for text in verify(made, folder))


def test_a_lost_stop_breaks_it(folder: Path) -> None:
    made = contract(folder)
    (folder / "generation_config.json").unlink()
    assert verify(made, folder) == ["<|endoftext|> (0) does not end an answer"]


def test_a_file_of_another_format_is_said(folder: Path) -> None:
    with pytest.raises(SpecError, match="expected format 1"):
        verify({"format": 9}, folder)
    with pytest.raises(SpecError, match=r"contract-1\.json"):
        verify({"format": 1}, folder)
