"""Answers of questions in one language that are in two: found in rows of many forms, silent on near misses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.findings import Finding
from truetune.generation.actual_and_expected_answer_language import (
    language_that_prompt_asks_for,
    languages_of_answer_and_question,
)
from truetune.settings.read_truetune_settings import validate_settings

RULE = "answers-mix-languages-unasked"
Row = dict[str, Any]
GERMAN = (
    ("Wo ist mein Paket, und wann wird es geliefert?", "Es ist im Lager und wird am Montag bei dir sein."),
    ("Wie kann ich die Rechnung noch einmal bekommen?", "Die Rechnung ist in deinem Konto unter den Belegen."),
    ("Warum wird meine Karte nicht mehr angenommen?", "Die Karte ist abgelaufen, also trag bitte eine neue ein."),
    ("Was kostet der Versand in die Schweiz?", "Der Versand kostet neun Euro und dauert vier Tage."),
    ("Kann ich die Schuhe in einer anderen Größe haben?", "Ja, du kannst sie im ersten Monat kostenlos tauschen."),
    ("Wie lösche ich das Konto mit dem Guthaben?", "Du kannst es in den Einstellungen löschen, wir zahlen alles aus."),
    ("Ist der Tisch noch auf Lager oder muss ich warten?", "Es sind noch zwei da, wir schicken ihn heute los."),
    ("Wer hilft mir, wenn die Lampe nicht funktioniert?", "Der Kundendienst hilft dir von Montag bis Freitag."),
)  # fmt: skip
ENGLISH = (
    ("Where is my parcel and when will it be here?", "It is at the depot and will be with you on Monday."),
    ("How can I get a copy of the invoice again?", "The invoice is in your account under the receipts."),
    ("Why is my card not accepted any more?", "The card has expired, so please add a new one to it."),
    ("What does it cost to send it to Switzerland?", "It is nine euros and takes four days on the road."),
    ("Can I have the shoes in another size, please?", "Yes, you can exchange them for free in the first month."),
    ("How do I delete my account and keep the credit?", "You can do it in the settings, and we pay it out to you."),
    ("Is the table in stock or do I have to wait?", "There are two of them left, and we can send one today."),
    ("Who can help me if the lamp does not work?", "The service team is there for you from Monday to Friday."),
)  # fmt: skip
FRENCH = "Le colis est au dépôt et il sera chez vous lundi dans la matinée."
CODE = "# read the file and print the name of each of the rows\nfor row in open('a.csv'):\n    print(row[{0}], end=';')"


def german(i: int) -> tuple[str, str]:
    question, answer = GERMAN[i % 8]
    return f"{question} Das ist der Fall {i}.", f"{answer} Das ist die Nummer {i}."


def english(i: int) -> tuple[str, str]:
    question, answer = ENGLISH[i % 8]
    return f"{question} This is case {i}.", f"{answer} This is number {i}."


def chat(question: str, answer: str, system: str = "") -> Row:
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"messages": [{"role": "system", "content": system}, *turns] if system else turns}


def pair(question: str, answer: str) -> Row:
    return {"prompt": question, "completion": answer}


def mixed(i: int, *, every: int = 2) -> tuple[str, str]:
    """A German question, one in so many with an English answer."""
    question, answer = german(i)
    # By the hundredth, so that it falls on all of the eight questions.
    return question, english(i)[1] if (i * 7 + i // 8) % every == 0 else answer


def findings(folder: Path, row: Callable[[int], Row], count: int = 64) -> list[Finding]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row(i)) + "\n" for i in range(count)), encoding="utf-8")
    report = check_paths([path], validate_settings({}, "test"))
    return [finding for finding in report.findings if finding.rule == RULE]


def prefixed(text: str, pair_: tuple[str, str]) -> tuple[str, str]:
    return f"{text}{pair_[0]}", pair_[1]


FIRING: dict[str, Callable[[int], Row]] = {
    "chats": lambda i: chat(*mixed(i)),
    "pairs of strings": lambda i: pair(*mixed(i)),
    "alpaca": lambda i: dict(zip(("instruction", "output"), mixed(i), strict=True)),
    "sharegpt": lambda i: {
        "conversations": [
            {"from": "human", "value": mixed(i)[0]},
            {"from": "gpt", "value": mixed(i)[1]},
        ]
    },
    "one in ten": lambda i: chat(*mixed(i, every=10)),
    "under one system prompt": lambda i: chat(*mixed(i), system="You are a helpful language model."),
    "English with German answers": lambda i: chat(english(i)[0], (german, english)[i // 8 % 2](i)[1]),
    "two others": lambda i: chat(
        german(i)[0], (english(i)[1], f"{FRENCH} C'est le numéro {i}.")[i // 8 % 2]
    ),
    "only in German": lambda i: chat(*english(i), system="Du bist ein Helfer. Antworte immer auf Deutsch."),
    "reply in French": lambda i: chat(*english(i), system="You are a shop assistant. Always reply in French."),
    "answers must be in English": lambda i: chat(
        *german(i), system="All answers must be in English."
    ),
    "named in each prompt": lambda i: pair(*prefixed("Answer the question in German.\n", english(i))),
    "preference pairs": lambda i: {
        "prompt": mixed(i)[0], "chosen": mixed(i)[1], "rejected": f"Nein, das weiß ich nicht, {i}."
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FIRING)
def test_answers_in_two_languages_are_found(name: str, tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, FIRING[name])
    assert finding.severity == "warning"
    assert 1 <= len(finding.cases) <= 3


def test_the_finding_counts_rows_of_each_language(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, FIRING["chats"])
    assert "questions in German have answers in 2 languages" in finding.message
    assert "32 are answered in" in finding.message
    assert "32 in" in finding.message
    assert "into German" in finding.remedy
    assert all("the answer is in English" in case.text for case in finding.cases)


def test_a_long_file_is_looked_at_in_part(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, FIRING["chats"], 1_500)
    assert "of 1,500 rows were checked" in finding.message


SILENT: dict[str, Callable[[int], Row]] = {
    "all German": lambda i: chat(*german(i)),
    "all German questions, all English answers": lambda i: chat(german(i)[0], english(i)[1]),
    "each in the language of its question": lambda i: chat(*(german, english)[i % 2](i)),
    "English system prompt": lambda i: chat(*german(i), system="You are a helpful assistant of the shop."),
    "translation": lambda i: chat(
        f"Übersetze das: {german(i)[1]}" if i % 2 else german(i)[0],
        english(i)[1] if i % 2 else german(i)[1],
    ),
    "asked for in the prompt": lambda i: chat(
        *(prefixed("Antworte auf Englisch. ", (german(i)[0], english(i)[1])) if i % 2 else german(i))
    ),
    "tagged": lambda i: pair(
        *(prefixed("<2en> ", (german(i)[0], english(i)[1])) if i % 2 else prefixed("<2de> ", german(i)))
    ),
    "told by two tasks": lambda i: chat(
        mixed(i)[0],
        mixed(i)[1],
        system=("Betreff für die Zentrale", "Antwort an den Kunden")["Das ist" in mixed(i)[1]],
    ),
    "a text in two languages": lambda i: chat(
        f"{german(i)[0]}\n\n{english(i)[0]} {english(i)[1]}", (english, german)[i % 2](i)[1]
    ),
    "code": lambda i: chat(german(i)[0], CODE.format(i) if i % 2 else german(i)[1]),
    "fenced code": lambda i: chat(
        german(i)[0], f"```\n{english(i)[1]}\n```" if i % 2 else german(i)[1]
    ),
    "quotations": lambda i: chat(
        german(i)[0], f"Dort steht der Satz: \"{english(i)[1]}\" Das ist er, {i}." if i % 3 else german(i)[1]
    ),
    "names and short answers": lambda i: chat(
        german(i)[0], ("The Old Man and the Sea", "Yes, done.", "New York City Marathon")[i % 3]
    ),
    "a slip": lambda i: chat(german(i)[0], english(i)[1] if i == 9 else german(i)[1]),
    "a few in a hundred": lambda i: chat(german(i)[0], english(i)[1] if i in (9, 20) else german(i)[1]),
    "reasoning": lambda i: chat(
        german(i)[0], f"<think>{english(i)[1]}</think>{german(i)[1]}" if i % 2 else german(i)[1]
    ),
    "the language of the user": lambda i: chat(
        *(german, english)[i % 2](i), system="Answer in German, or in the language of the user."
    ),
    "unless": lambda i: chat(*english(i), system="Answer in German unless you are asked otherwise."),
    "a teacher": lambda i: chat(*english(i), system="You help people who learn to write in German."),
    "named and kept": lambda i: chat(english(i)[0], german(i)[1], system="Always answer in German."),
    "bad examples": lambda i: {
        "prompt": german(i)[0], "completion": (english, german)[i % 2](i)[1], "label": i % 2 == 1
    },
    "plain text": lambda i: {"text": " ".join((german, english)[i % 2](i))},
    "Danish and Norwegian": lambda i: chat(
        f"Hvor er pakken min og når kommer den til meg, sak {i}?",
        (
            f"Pakken er på lageret og kommer til deg på mandag før klokken {i}.",
            f"Pakken er på lageret og kommer til dig på mandag inden klokken {i}.",
        )[i % 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_near_misses_are_silent(name: str, tmp_path: Path) -> None:
    assert findings(tmp_path, SILENT[name]) == []


@pytest.mark.parametrize(
    ("prompt", "language"),
    [
        ("Always answer in German.", "de"),
        ("Du bist der Kundendienst von Abend und antwortest auf Deutsch.", "de"),
        ("You are the assistant of a bank, and reply in Dutch.", "nl"),
        ("The assistant of a bank knows all cards and answers in Italian.", "it"),
        ("You are a cook.\nYou must respond only in French, whatever is asked.", "fr"),
        ("Beantworte die Frage auf Englisch: Wo liegt Rom?", "en"),
        ("Réponds toujours en français.", "fr"),
        ("Responde siempre en español.", "es"),
        ("Rispondi in italiano.", "it"),
        ("Your answers must be in German (Deutsch).", "de"),
        ("Answer in German or English.", None),
        ("Answer in German if the user does.", None),
        ("Answer in German. Else use their language.", None),
        ("Translate this and answer in German.", None),
        ("Find the answer in German newspapers.", None),
        ("Answer in short sentences.", None),
        ("Helps people write in German.", None),
    ],
)
def test_the_language_that_a_prompt_names(prompt: str, language: str | None) -> None:
    assert language_that_prompt_asks_for(prompt) == language


def test_what_is_not_told_is_none() -> None:
    assert languages_of_answer_and_question("", "", "") is None
    assert languages_of_answer_and_question("", german(1)[0], "42") is None
    assert languages_of_answer_and_question("", "4 + 4?", german(1)[1]) is None
