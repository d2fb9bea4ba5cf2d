"""Rows that a model was trained on are known by its record, or by the files that are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.auditing import tiny
from tests.evaluation.held import probes_of, write
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.demo import TOKENIZER
from truetune.encoding.encode_data_set import encode
from truetune.evaluation.training_overlap import TrainingOverlap, find_training_overlap
from truetune.generation.answer_samples import Prompt
from truetune.generation.backends.model_source import ModelSource
from truetune.generation.build_prompts import build_prompts
from truetune.render.template_probes import Probes
from truetune.settings.read_truetune_settings import validate_settings

HELD = 2
"""The row of `trained` that was held out"""


def chat(question: str, answer: str) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ]
    }


def place(folder: Path, **run: Any) -> ModelSource:
    return ModelSource(str(folder), "model", folder, None, TOKENIZER, folder, run, None)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    return write(tmp_path, tiny.chats(6), "trained.jsonl")


@pytest.fixture
def asked(tmp_path: Path) -> list[Prompt]:
    """Of a row that is trained on, the held-out row, one in another case, one with another answer, one whose answer
    only begins so, and a new one."""
    first, _, held, third, fourth, fifth = (
        [m["content"] for m in row["messages"]] for row in tiny.chats(6)
    )
    rows = [
        chat(*first),
        chat(*held),
        chat(third[0].upper(), f" {third[1].lower()}. "),
        chat(fourth[0], "None."),
        chat(fifth[0], fifth[1].rpartition(" ")[0]),
        chat("Is it open?", "It is."),
    ]
    probes = probes_of()
    return build_prompts(
        probes.spec, read_conversations([str(write(tmp_path, rows))]), len(rows), probes=probes
    )


def run_of(trained: Path, out: Path) -> tuple[Probes, dict[str, Any]]:
    """What `truetune train` records."""
    spec = validate_settings({"tokenizer": str(TOKENIZER), "data": [str(trained)]}, "test")
    encoded = encode(spec, out)
    data = {
        "key": encoded.manifest["key"],
        "inputs": encoded.manifest["inputs"],
        "folder": str(encoded.folder),
    }
    return probes_of(), {"data": {**data, "held_out": [HELD]}, "settings": {"data": [str(trained)]}}


def hows(found: TrainingOverlap | str) -> list[str | None]:
    assert isinstance(found, TrainingOverlap)
    return [None if seen is None else seen.how for seen in found.seen]


FOUND = ["row", None, "near", "prompt", "prompt", None]


def test_by_the_encoded_rows(trained: Path, asked: list[Prompt], tmp_path: Path) -> None:
    probes, run = run_of(trained, tmp_path / "encoded")
    found = find_training_overlap(place(tmp_path, **run), asked, probes)
    assert hows(found) == FOUND
    assert isinstance(found, TrainingOverlap)
    assert found.rows == 5
    assert found.seen[2] is not None
    assert (found.seen[2].file, found.seen[2].line) == (trained.name, 4)
    assert [prompt.seen for prompt in found.mark_prompts_as_seen_or_not(asked)] == [
        True,
        False,
        True,
        False,
        False,
        False,
    ]


def test_by_the_files_where_the_encoded_rows_are_gone(
    trained: Path, asked: list[Prompt], tmp_path: Path
) -> None:
    probes, run = run_of(trained, tmp_path / "encoded")
    run["data"]["folder"] = str(tmp_path / "gone")
    assert hows(find_training_overlap(place(tmp_path, **run), asked, probes)) == FOUND
    trained.write_text(trained.read_text() + "\n")
    changed = find_training_overlap(place(tmp_path, **run), asked, probes)
    assert isinstance(changed, str)
    assert "not on this machine as they were" in changed


def test_by_named_files(trained: Path, asked: list[Prompt], tmp_path: Path) -> None:
    found = find_training_overlap(place(tmp_path), asked, probes_of(), [str(trained)])
    assert hows(found) == ["row", "row", *FOUND[2:]]
    assert isinstance(found, TrainingOverlap)
    assert found.source == str(trained)


def test_nothing_is_recorded(asked: list[Prompt], tmp_path: Path) -> None:
    said = find_training_overlap(place(tmp_path), asked, probes_of())
    assert isinstance(said, str)
    assert "--trained-on" in said


def test_text_without_turns(tmp_path: Path) -> None:
    text = (
        "The lamp of the lighthouse is lit every evening by its keeper, who has lived there for"
        " many years."
    )
    probes = probes_of()
    rows = write(
        tmp_path,
        [{"text": text}, {"text": text.replace("many", "few")}, {"text": "It is open on Sundays."}],
    )
    prompts = build_prompts(probes.spec, read_conversations([str(rows)]), 3, probes=probes)
    alone = write(tmp_path, [{"text": text}], "trained.jsonl")
    made = [replace(prompt, line=i) for i, prompt in enumerate(prompts)]
    assert hows(find_training_overlap(place(tmp_path), made, probes, [str(alone)]))[0] == "row"
    assert hows(find_training_overlap(place(tmp_path), made, probes, [str(alone)]))[-1] is None
