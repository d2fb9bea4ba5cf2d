"""Predictions that were decoded with their prompt, and those of models that repeat a question."""

from __future__ import annotations

import pytest

from truetune.generation.prompt_left_in_predictions import find_prompt_in_front

QUESTIONS = [f"how do I reset meter number {number}?" for number in range(10)]
ANSWERS = [f"press button {number}" for number in range(10)]


@pytest.mark.parametrize(
    "form",
    [
        "system\nBe short.\nuser\n{q}\nassistant\n{a}",
        "<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n{a}",
        "[INST] {q} [/INST] {a}",
        "### Instruction:\n{q}\n\n### Response:\n{a}",
        "Classify the mail.\n\n{q}\nAnswer: {a}",
        "{q}\n{a}",
        "<|start_header_id|>user<|end_header_id|>\n\n{q}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n{a}",
        "<start_of_turn>user\n{q}<end_of_turn>\n<start_of_turn>model\n{a}",
    ],
)
def test_the_prompt_is_cut_off(form: str) -> None:
    texts = [form.format(q=q, a=a) for q, a in zip(QUESTIONS, ANSWERS, strict=True)]
    found = find_prompt_in_front(texts, QUESTIONS, ANSWERS)
    assert found is not None
    assert list(found.answers) == ANSWERS


def test_a_chat_without_its_question() -> None:
    texts = [f"user\n{q}\nassistant\n{a}" for q, a in zip(QUESTIONS, ANSWERS, strict=True)]
    found = find_prompt_in_front(texts, [""] * 10, ANSWERS)
    assert found is not None
    assert list(found.answers) == ANSWERS


@pytest.mark.parametrize(
    ("texts", "references"),
    [
        (ANSWERS, ANSWERS),
        ([f"You ask: {q}" for q in QUESTIONS[:4]] + ANSWERS[4:], ANSWERS),
        ([f"{n} people ask: {q} So {n}" for n, q in enumerate(QUESTIONS)], ANSWERS),
        ([f"{q} yes" for q in QUESTIONS], [f"{q} yes" for q in QUESTIONS]),
        ([f"The corrected text: {q} (no change)" for q in QUESTIONS], ANSWERS),
        (QUESTIONS, ANSWERS),
        ([f"{q} {q} {q}" for q in QUESTIONS], ANSWERS),
    ],
    ids=["answers", "some", "inside", "in the references", "corrected", "nothing else", "again"],
)
def test_other_predictions_are_left_alone(texts: list[str], references: list[str]) -> None:
    assert find_prompt_in_front(texts, QUESTIONS, references) is None
