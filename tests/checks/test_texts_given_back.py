"""Rows for editing a text whose answer is that text, unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from truetune.cli import truetune_group

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hal")
VERBS = ("reads", "sells", "paints", "finds", "carries")


def sentence(i: int) -> str:
    return f"{NAMES[i % 8]} {VERBS[i % 5]} the map of street {i} with great care."


FORMS = {
    "alpaca": lambda i, said: {"instruction": "Correct it.", "input": sentence(i), "output": said},
    "chat": lambda i, said: {
        "messages": [
            {"role": "user", "content": f"Translate into German:\n\n{sentence(i)}"},
            {"role": "assistant", "content": said},
        ]
    },
    "label before": lambda i, said: {
        "prompt": f"Rewrite this.\nText: {sentence(i)}",
        "completion": said,
    },
}


def output_for(rows: Sequence[Mapping[str, object]], folder: Path) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    printed = CliRunner().invoke(truetune_group, ["check", str(path)]).stdout
    return " ".join(printed.split())


def edited(i: int) -> str:
    return sentence(i).replace("great", "much") + " Yes."


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("same", "fires"), [(9, True), (7, True), (5, False), (0, False)])
def test_answers_that_give_the_text_back(form: str, same: int, fires: bool, tmp_path: Path) -> None:
    rows = [FORMS[form](i, sentence(i) if i % 10 < same else edited(i)) for i in range(60)]
    assert ("last paragraph of their prompt, unchanged" in output_for(rows, tmp_path)) is fires


def test_labels_and_one_sentence_for_all_are_no_texts(tmp_path: Path) -> None:
    labels = [{"prompt": f"{sentence(i)}\nyes\nno", "completion": "no"} for i in range(60)]
    assert "unchanged" not in output_for(labels, tmp_path)
    refusals = [
        {"prompt": f"{sentence(i)}\nI do not know that.", "completion": "I do not know that."}
        for i in range(60)
    ]
    assert "unchanged" not in output_for(refusals, tmp_path)
