"""Verdicts of an LLM judge and answers of two models in files, and near misses of each fault."""

# ruff: noqa: E501 - scripts stand as they are written
from __future__ import annotations

import csv
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from truetune.data.llm_judge_verdicts_and_bias import parse_winning_place
from truetune.demo import TOKENIZER
from truetune.evaluation.judge_files_on_two_models import _list_row_files
from truetune.evaluation.score_predictions import score
from truetune.report.answers_terminal import describe_success
from truetune.settings.run_spec import RunSpec
from truetune.troubleshooting.check_project import check_project

PLACE, LENGTH, ALIKE, JSON_FORM = "EVAL015", "EVAL016", "EVAL017", "ANS030"
CODES = (PLACE, LENGTH, ALIKE, JSON_FORM)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def codes(folder: Path) -> list[str]:
    report = check_project([str(folder)], RunSpec())
    return [one.code for one in report.findings if one.code in CODES]


def verdicts(
    by_place: float, names: tuple[str, str, str], marks: tuple[str, str], seed: int
) -> list[dict[str, Any]]:
    """Rows of 60 pairs in both orders; with this chance a verdict goes by place, else the better answer wins."""
    draw = random.Random(seed)
    one, other, verdict = names
    rows: list[dict[str, Any]] = []
    for number in range(60):
        texts = [f"Press the button of part {number}.", f"Ask the shop for part {number}."]
        better = draw.randrange(2)
        for order in ((0, 1), (1, 0)):
            wins = 0 if draw.random() < by_place else order.index(better)
            rows.append(
                {
                    "id": number,
                    "question": f"How do I reset part {number}?",
                    one: texts[order[0]],
                    other: texts[order[1]],
                    verdict: marks[wins],
                }
            )
    return rows


STYLES = {
    "letters": (("answer_a", "answer_b", "verdict"), ("A", "B"), "judged.jsonl"),
    "numbers": (("response_1", "response_2", "winner"), ("1", "2"), "out/mt.jsonl"),
    "models": (("answer_a", "answer_b", "winner"), ("model_a", "model_b"), "battles.csv"),
    "marks": (("output_1", "output_2", "judgment"), ("[[A]]", "[[B]]"), "v.jsonl"),
    "words": (("Assistant A", "Assistant B", "Judge"), ("Assistant A", "Assistant B"), "v.jsonl"),
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("by_place", "fires"), [(0.8, True), (0.0, False), (0.1, False)])
def test_a_judge_that_goes_by_place(
    tmp_path: Path, style: str, by_place: float, fires: bool
) -> None:
    names, marks, file = STYLES[style]
    write(tmp_path / file, verdicts(by_place, names, marks, seed=3))
    assert (PLACE in codes(tmp_path)) is fires


def battles(first: str, second: str, first_wins: int, of: int = 60) -> list[dict[str, Any]]:
    """Verdicts without texts, by the names of the models."""
    return [
        {
            "question_id": n,
            "model_a": first,
            "model_b": second,
            "winner": "model_a" if n < first_wins else "model_b",
        }
        for n in range(of)
    ]


@pytest.mark.parametrize(
    ("rows", "fires"),
    [
        (battles("base", "base", 45), True),
        (battles("sft", "base", 45) + battles("base", "sft", 43), True),
        (battles("sft", "base", 45) + battles("base", "sft", 14), False),  # sft is better
        (battles("sft", "base", 45), False),  # one order: nothing tells place from quality
        (battles("base", "base", 33), False),
        (battles("sft", "base", 55) + battles("base", "sft", 2, of=8), False),
    ],
)
def test_models_against_one_another(
    tmp_path: Path, rows: list[dict[str, Any]], fires: bool
) -> None:
    write(tmp_path / "arena.jsonl", rows)
    assert (PLACE in codes(tmp_path)) is fires


@pytest.mark.parametrize(("longer_wins", "fires"), [(38, True), (26, False)])
def test_a_judge_that_prefers_length(tmp_path: Path, longer_wins: int, fires: bool) -> None:
    rows = [
        {
            "question": f"q {n}",
            "answer_a": f"A long answer to {n}, with more words." if n % 2 else f"Short {n}.",
            "answer_b": f"Short {n}." if n % 2 else f"A long answer to {n}, with more words.",
            "verdict": "AB"[(n % 2 == 0) == (n < longer_wins)],
        }
        for n in range(40)
    ]
    write(tmp_path / "judged.jsonl", rows)
    assert (LENGTH in codes(tmp_path)) is fires


@pytest.mark.parametrize(
    ("value", "slot"),
    [
        ("A", "first"),
        ("model_b", "second"),
        ("[[B]]", "second"),
        ("My verdict: [[A]]", "first"),
        ("tie (bothbad)", "tie"),
        ("C", "tie"),
        (2, "second"),
        ("The first answer is better because", "unread"),
        (None, "unread"),
        (True, "unread"),
    ],
)
def test_verdicts_are_read(value: Any, slot: str) -> None:
    assert parse_winning_place(value) == slot


def test_other_files_are_no_verdicts(tmp_path: Path) -> None:
    choices = [
        {"question": f"q {n}", "option_a": "x", "option_b": "y", "answer": "A"} for n in range(40)
    ]
    pairs = [{"prompt": f"q {n}", "chosen": f"yes {n}", "rejected": f"no {n}"} for n in range(40)]
    write(tmp_path / "quiz.jsonl", choices)
    write(tmp_path / "pairs.jsonl", pairs)
    assert codes(tmp_path) == []


def sentences(model: int, rows: int = 30, differing: int = 0) -> list[dict[str, Any]]:
    """Predictions; as many of them as `differing` depend on the model."""
    return [
        {
            "id": n,
            "prediction": f"Thank you, part {n} leaves us on day {n + (model if n < differing else 0) * 7} of the month.",
            "reference": f"day {n}",
        }
        for n in range(rows)
    ]


@pytest.mark.parametrize(
    ("files", "differing", "fires"),
    [
        (("preds_base.jsonl", "preds_sft.jsonl"), 0, True),
        (("base/preds.jsonl", "lora/preds.jsonl"), 0, True),
        (("before.csv", "after.csv"), 0, True),
        (("preds_base.jsonl", "preds_sft.jsonl"), 10, False),
        (
            ("preds_a.jsonl", "preds_copy.jsonl"),
            0,
            False,
        ),  # nothing says that another model wrote it
        (("sft_seed1.jsonl", "sft_seed2.jsonl"), 0, False),
    ],
)
def test_two_files_of_answers(
    tmp_path: Path, files: tuple[str, str], differing: int, fires: bool
) -> None:
    for model, file in enumerate(files):
        write(tmp_path / "eval" / file, sentences(model, differing=differing))
    assert (ALIKE in codes(tmp_path / "eval")) is fires


def test_two_columns_and_two_values_of_model(tmp_path: Path) -> None:
    texts = [row["prediction"] for row in sentences(0)]
    columns = [
        {"question": f"q {n}", "base_answer": t, "tuned_answer": t} for n, t in enumerate(texts)
    ]
    write(tmp_path / "one" / "both.jsonl", columns)
    models = [
        {"id": n, "model": name, "response": t}
        for name in ("org/base", "org/base-sft")
        for n, t in enumerate(texts)
    ]
    write(tmp_path / "two" / "all.jsonl", models)
    assert codes(tmp_path / "one") == [ALIKE]
    assert codes(tmp_path / "two") == [ALIKE]


def test_labels_may_be_equal(tmp_path: Path) -> None:
    for file in ("preds_base.jsonl", "preds_sft.jsonl"):
        rows = [
            {"id": n, "prediction": "yes" if n % 3 else "no", "reference": "yes"} for n in range(40)
        ]
        write(tmp_path / file, rows)
    assert codes(tmp_path) == []


GOLD = [json.dumps({"vendor": f"shop {n}", "total": n}) for n in range(40)]


def of_json(bad: int, kind: str) -> list[str]:
    made = {
        "twice": lambda text: text + "\n" + text,
        "cut": lambda text: text[:-4],
        "prose": lambda text: "I can't read it",
        "python": lambda text: text.replace('"', "'"),
        "fenced": lambda text: f"```json\n{text}\n```",
        "spaced": lambda text: text.replace(":", " :  "),
    }[kind]
    return [made(text) if n < bad else text for n, text in enumerate(GOLD)]


@pytest.mark.parametrize("kind", ["twice", "cut", "prose", "python"])
def test_answers_that_are_no_json_count_over_all_rows(kind: str) -> None:
    report = score(of_json(15, kind), references=GOLD)
    assert [one.code for one in report.findings if one.code in CODES] == [JSON_FORM]
    assert "25 of 40 (62%) are right" in describe_success(report)


@pytest.mark.parametrize(
    ("kind", "bad"), [("fenced", 15), ("spaced", 40), ("twice", 0), ("cut", 1)]
)
def test_answers_that_are_json(kind: str, bad: int) -> None:
    report = score(of_json(bad, kind), references=GOLD)
    assert [one.code for one in report.findings if one.code in CODES] == []


def test_files_of_a_model_are_not_read_as_answers(tmp_path: Path) -> None:
    """A tokenizer.json has up to 33 MB, and each `check` of a model's folder read it as rows."""
    shutil.copytree(TOKENIZER, tmp_path / "model")
    write(tmp_path / "model" / "answers.jsonl", [{"question": "a", "answer": "b"}])
    for paths in ([tmp_path], [tmp_path / "model"], list((tmp_path / "model").iterdir())):
        assert [path.name for path in _list_row_files(paths)] == ["answers.jsonl"]
