"""Two models on the same rows: the differences in words and in figures."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from transformers import AutoTokenizer

from tests.auditing import tiny
from tests.evaluation.answering import LIMIT
from tests.evaluation.test_sample import asked, ran
from truetune.errors import UsageError
from truetune.evaluation.compare_model_answers import (
    FAULT_PHRASES,
    compare_model_answers,
    describe_change,
)
from truetune.generation.answer_samples import Answer, Prompt, Sample
from truetune.generation.answer_verdicts import Verdict
from truetune.generation.score_answer_by_prompt_and_reference import score_answer

EN = (
    "The lighthouse stands on the northern cliff, and its lamp is lit every evening by the old"
    " keeper."
)
DE = (
    "Der Leuchtturm steht auf der nördlichen Klippe, und seine Lampe wird jeden Abend vom Wärter"
    " angezündet."
)


def said(text: str, *, stops: bool = True, reference: str = EN) -> Sample:
    prompt = Prompt(
        (1,), "Where is it?", reference, (1,) * (len(reference.split()) + 1), "a.jsonl", 1
    )
    answer = Answer((1,) * len(text.split()), text, 2 if stops else None)
    return Sample(prompt, answer, score_answer(prompt, answer))


@pytest.mark.parametrize(
    ("now", "before", "wanted"),
    [
        (said(EN), said(EN), ["same answer"]),
        (
            said(EN),
            said(EN, stops=False),
            ["now terminates; previously truncated", "the same words"],
        ),
        (
            said(EN, stops=False),
            said(EN),
            ["now truncated; previously terminated", "the same words"],
        ),
        (said(EN), said(DE), ["another language: en, de before", "nearer to the reference"]),
        (
            said("On the cliff."),
            said("On the " + EN),
            ["shorter: 3 tokens, 20 before", "farther from"],
        ),
        (
            said("It is lit."),
            said("It is lost."),
            ["diverge at character 7: 'lit.' now, 'lost.' before"],
        ),
        (said("It is"), said("It is lost."), ["the beginning of the one before"]),
        (said(""), said("It is lost."), ["empty now"]),
        (
            said(EN),
            said("go on " * 40, stops=False),
            ["now terminates; previously truncated", "loops no more"],
        ),
    ],
)
def test_differences_in_words(now: Sample, before: Sample, wanted: list[str]) -> None:
    found = list(describe_change(now, before, 200))
    assert all(any(want in word for word in found) for want in wanted), found
    if wanted == ["same answer"]:
        assert found == wanted


@pytest.mark.parametrize(
    ("score", "phrase"),
    [
        ({"escapes": ("\\n",)}, "escapes instead of characters"),
        ({"alike": True}, "the same answer to all"),
        ({"elsewhere": True}, "another row's reference"),
        ({"too_long": True}, "far longer than its reference"),
        ({"switched": True}, "not in the reference's language"),
        ({"parsed": False}, "unread by the parser"),
    ],
)
def test_a_fault_that_one_of_two_answers_has(score: dict[str, Any], phrase: str) -> None:
    sound, other = said("It is lit."), said("It is lost.")
    faulty = replace(other, scores=replace(other.scores, **score))
    assert f"{phrase} now" in list(describe_change(faulty, sound, 200))
    assert f"{phrase} no more" in list(describe_change(sound, faulty, 200))


def test_every_fault_has_its_words_in_a_comparison() -> None:
    assert set(FAULT_PHRASES) == set(get_args(Verdict))


def test_differences_in_figures() -> None:
    pairs = [(said(EN), said(EN, stops=i % 2 == 0)) for i in range(12)]
    found = compare_model_answers("other", pairs, 200)
    rows = {row.name: row for row in found.figures}
    assert (
        rows["well-formed answers"].mine,
        rows["well-formed answers"].other,
        rows["well-formed answers"].only,
    ) == (
        1.0,
        0.5,
        (6, 0),
    )
    assert rows["well-formed answers"].p == pytest.approx(2 / 2**6)
    assert rows["overlap with the reference"].p == 1
    assert rows["P(stop) after the reference"].mine is None
    assert found.equal_answer_count == 6
    assert compare_model_answers("other", [], 200).figures == ()


def test_two_models_side_by_side(right: Path, broken: Path, rows: Path) -> None:
    done = ran(right, "--data", rows, "--against", broken, "-n", 4, "--max-new-tokens", LIMIT)
    assert done.return_value == 0
    assert "now terminates; previously truncated" in done.stdout
    assert "well-formed answers: 4 only now, 0 only before" in done.stdout
    report = asked(right, rows, compare=str(right))
    assert report.compared is not None
    assert report.compared.equal_answer_count == 8
    assert report.compared.notes == ()


def test_another_template_and_none(right: Path, rows: Path, tmp_path: Path) -> None:
    other, bare = (shutil.copytree(right, tmp_path / name) for name in ("other", "bare"))
    tokenizer = AutoTokenizer.from_pretrained(other)
    tokenizer.chat_template = "Sys\n" + tokenizer.chat_template
    tokenizer.save_pretrained(other)
    found = asked(right, rows, compare=str(other)).compared
    assert found is not None
    assert found.notes == ("8 of 8 prompts differ: each model is asked by its own template",)
    tokenizer.chat_template = None
    (bare / "chat_template.jinja").unlink()
    tokenizer.save_pretrained(bare)
    found = asked(right, rows, compare=str(bare)).compared
    assert found is not None
    assert found.equal_answer_count == 8
    assert "has no template" in found.notes[0]
    with pytest.raises(UsageError, match="no such file"):
        asked(right, rows, compare=str(tmp_path / "nothing"))


def test_a_model_without_a_tokenizer_takes_the_other_ones(
    right: Path, rows: Path, tmp_path: Path
) -> None:
    bare = shutil.copytree(
        right, tmp_path / "bare", ignore=shutil.ignore_patterns("tokenizer*", "*.jinja")
    )
    found = asked(right, rows, compare=str(bare)).compared
    assert found is not None
    assert found.equal_answer_count == 8


def test_rows_on_one_line_are_told_apart(right: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(tiny.chats(4)))
    done = ran(right, "--data", path, "--against", right, "--max-new-tokens", LIMIT)
    assert "4 of 4 answers the same" in done.stdout
    assert all(
        f"rows.json row {i} How many {fruit}" in done.stdout
        for i, fruit in enumerate(tiny.FRUITS[:4])
    )


def test_a_pair_is_the_same_token_by_token() -> None:
    other = said(EN)
    assert (
        compare_model_answers(
            "x", [(said(EN), replace(other, answer=replace(other.answer, stop=None)))], 200
        ).equal_answer_count
        == 1
    )
