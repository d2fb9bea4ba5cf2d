"""Prompts that end in a space, against the texts of the training beside."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

ASK = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("out")
model = AutoModelForCausalLM.from_pretrained("out")
def ask(q):
    return model.generate(**tok({}, return_tensors="pt"), max_new_tokens=9)
"""
QA = "f'Question: {q}\\nAnswer: '"
FOUND = [
    (QA, "def row(q, a):\n    return {'text': f'Question: {q}\\nAnswer: {a}</s>'}\n"),
    (QA, "def row(r):\n    return 'Question: ' + r['q'] + '\\nAnswer: ' + r['a']\n"),
    (QA, "T = 'Question: {}\\nAnswer: {}'\ndef row(q, a):\n    return T.format(q, a)\n"),
    (QA, "def row(q, a):\n    p = f'Question: {q}\\nAnswer: '\n    return tok(p + a)\n"),
    ("'### Input:\\n' + q + '\\n### Response: '", "T = '### Input:\\n{}\\n### Response:\\n{}'\n"),
    ("f'[Q] {q}\\n[A] '", "def row(q, a):\n    return f'[Q] {q}\\n[A] {a}'\n"),
]
SILENT = [
    (QA.replace("Answer: ", "Answer:"), FOUND[0][1]),
    # the prompt is encoded apart in training, so that the lone space was seen
    (
        QA,
        "def row(q, a):\n    return tok(f'Question: {q}\\nAnswer: ')['input_ids'] + tok(a)['input_ids']\n",
    ),
    (QA, "def row(q, a):\n    return f'Frage: {q}\\nAntwort: {a}'\n"),
    (QA, "print('nothing')\n"),
    ("q + '\\nAnswer: ' + 'Let us think'", FOUND[0][1]),
    ("q", FOUND[0][1]),
]


def _found(ask: str, prep: str, folder: Path) -> list[str]:
    (folder / "prep.py").write_text(prep)
    path = folder / "ask.py"
    path.write_text(ASK.replace("{}", ask))
    findings = lint([path], select=["asked-in-another-form"]).findings
    return [one.message for one in findings if "ends in a space" in one.message]


@pytest.mark.parametrize(("ask", "prep"), FOUND)
def test_a_space_that_the_training_has_not(ask: str, prep: str, tmp_path: Path) -> None:
    assert len(_found(ask, prep, tmp_path)) == 1


@pytest.mark.parametrize(("ask", "prep"), SILENT)
def test_sound_endings(ask: str, prep: str, tmp_path: Path) -> None:
    assert _found(ask, prep, tmp_path) == []
