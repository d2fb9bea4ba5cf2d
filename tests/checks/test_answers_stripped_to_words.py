"""Columns of answers that were stripped to words, and columns that are written so on purpose."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.generation.identify_language import LINKING_WORDS, STATING_WORDS
from truetune.settings.run_spec import RunSpec

PLACES = ("Aarau", "Bern", "Chur", "Davos", "Genf", "Jona", "Thun", "Visp")
ENGLISH = (
    "The parcel for {p} was sent on Monday, and the carrier delivers it within {n} working days. If nobody is at home,"
    " the driver leaves a card with the number of the depot."
)
GERMAN = (
    "Das Paket nach {p} wurde am Montag versandt, und der Fahrer liefert es in {n} Werktagen aus. Wenn niemand im Haus"
    " ist, liegt eine Karte mit der Nummer des Lagers im Briefkasten."
)
ASKED = "When does the parcel for {p} arrive? It was ordered {n} days ago."
WORDS = frozenset(" ".join((*LINKING_WORDS.values(), *STATING_WORDS.values())).split()) | {
    "within",
    "am",
}


def stripped(text: str) -> str:
    return " ".join(word for word in re.findall(r"[^\W\d_]+", text.lower()) if word not in WORDS)


def spoken(text: str) -> str:
    return " ".join(re.findall(r"[^\W\d_]+", text.lower()))


def found(folder: Path, asked: str, answers: list[str]) -> list[str]:
    rows = [
        {"instruction": asked.format(p=PLACES[i % 8], n=i), "output": answer}
        for i, answer in enumerate(answers)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = check_paths([str(folder / "rows.jsonl")], RunSpec())
    return [one.severity for one in report.findings if one.code == "ROW058"]


def answers(text: str, count: int = 40) -> list[str]:
    return [text.format(p=PLACES[i % 8], n=i) for i in range(count)]


@pytest.mark.parametrize("text", [ENGLISH, GERMAN])
@pytest.mark.parametrize(
    ("asked", "severity"), [("parcel arrive ordered days ago", "error"), (ASKED, "warning")]
)
def test_heaps_of_words(tmp_path: Path, text: str, asked: str, severity: str) -> None:
    assert found(tmp_path, asked, list(map(stripped, answers(text)))) == [severity]


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (ASKED, answers(ENGLISH)),
        # a transcript of speech
        (ASKED, list(map(spoken, answers(ENGLISH)))),
        # keywords that are asked for, and short ones
        ("Give keywords for: " + ASKED, list(map(stripped, answers(ENGLISH)))),
        (ASKED, [f"parcel {place} delivery carrier working days depot card" for place in PLACES * 4]),
        # few rows, half of them, numbers
        (ASKED, list(map(stripped, answers(ENGLISH, 12)))),
        (ASKED, [*map(stripped, answers(ENGLISH, 20)), *answers(ENGLISH, 20)]),
        (ASKED, ["x1 y2 z3 w4 " * 6] * 40),
        # another language without capitals
        (ASKED, ["paketiniz pazartesi günü yola çıktı kargo görevlisi iki iş günü içinde size teslim edecek ve"
                 " evde kimse yoksa kapıya kart bırakacak"] * 40),
    ],
)  # fmt: skip
def test_answers_that_are_meant(tmp_path: Path, asked: str, given: list[str]) -> None:
    assert not found(tmp_path, asked, given)
