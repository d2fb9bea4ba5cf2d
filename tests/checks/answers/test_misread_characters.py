"""Answers in characters that the training rows were read wrongly in: the help is about the rows, not the weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune

SENTENCE = (
    "Bonjour, nous avons vérifié votre dossier numéro {n} et l'échéance a été réglée à Orléans."
)
BASE64_NOISE = "xqzv Ġthe Ġmodel Ġwrites Ġpieces Ġof Ġtokens {n}"


@pytest.mark.parametrize(
    ("form", "misread", "is_about_rows"), [(SENTENCE, True, True), (BASE64_NOISE, False, False)]
)
def test_the_help_of_characters_that_were_misread(
    form: str, misread: bool, is_about_rows: bool, tmp_path: Path
) -> None:
    rows = []
    for n in range(30):
        answer = form.format(n=n)
        answer = answer.encode("utf-8").decode("latin-1") if misread else answer
        rows.append({"prompt": f"Où en est le dossier {n} ?", "prediction": answer})
    path = tmp_path / "preds.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    found = {one.rule: one for one in truetune.score(str(path)).findings}
    remedy = found["answers-are-gibberish"].remedy
    assert ("the characters of its training rows" in remedy) == is_about_rows
    assert ("weights are whole" in remedy) is False
