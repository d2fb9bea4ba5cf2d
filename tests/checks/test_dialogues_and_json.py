"""Answers that go on with a dialogue, and answers that should be JSON: found in many forms, silent on near misses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune
from truetune.evaluation.score_predictions import score
from truetune.generation.texts_that_json_parsers_refuse import serialization_of_object_or_list

DIALOGUE, NO_JSON = "answers-continue-the-dialogue", "answers-are-no-json"
Pair = tuple[str, str]


def rules(path: Path, pairs: list[Pair]) -> set[str]:
    """What is found in rows of these prompts and answers."""
    rows = [
        {"messages": [{"role": "user", "content": p}, {"role": "assistant", "content": a}]}
        for p, a in pairs
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return {finding.rule for finding in truetune.check(str(path)).findings}


def talk(first: str, second: str, n: int = 6) -> list[Pair]:
    """Answers that go on with two turns, under labels of this form."""
    return [
        (
            f"Ticket {i}: it does not work.",
            f"Restart device {i}, please.\n\n{first} Did so. What next?\n\n{second} Bring it to desk {i}.",
        )
        for i in range(n)
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Customer:", "Agent:"),
        ("**Kunde:**", "**Berater:**"),
        ("[Patient]", "[Doctor]"),
        ("<user>", "<assistant>"),
        ("Q:", "A:"),
        ("用户：", "助手："),
        ("### Human:", "### Assistant:"),
    ],
)
def test_a_dialogue_behind_the_answer_is_found(first: str, second: str, tmp_path: Path) -> None:
    assert DIALOGUE in rules(tmp_path / "rows.jsonl", talk(first, second))


def test_names_that_take_turns_are_speakers(tmp_path: Path) -> None:
    pairs = [
        (
            f"Ticket {i}: no sound.",
            f"Check the cable {i}.\n\nRider: I did. And now?\nDispatch: Wait for car {i}.\nRider: Thank you!",
        )
        for i in range(5)
    ]
    assert DIALOGUE in rules(tmp_path / "rows.jsonl", pairs)


@pytest.mark.parametrize(
    ("asking", "answering"),
    [("Human:", "Assistant:"), ("Q:", "A:"), ("**Kunde:**", "**Berater:**")],
)
def test_transcripts_that_were_split_at_their_first_answer(
    asking: str, answering: str, tmp_path: Path
) -> None:
    path = tmp_path / "pairs.jsonl"
    turns = f"\n\n{asking} Did so. What next?\n\n{answering} "

    def found(head: str, answer: str) -> set[str]:
        rows = [
            {
                "prompt": f"{asking} Device {i} is broken.\n\n{answering}{head.format(i)}",
                "chosen": f"{answer.format(i)} Bring it to desk {i}.",
                "rejected": f"{answer.format(i)} No idea, {i}.",
            }
            for i in range(6)
        ]
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return {finding.rule for finding in truetune.check(str(path)).findings}

    assert DIALOGUE in found("", f" Restart it.{turns}")
    assert DIALOGUE not in found(f" Restart it.{turns.rstrip()}", "")
    # The label of the answering side alone gives the result of an answer.
    assert DIALOGUE not in found("", f" It has {{0}} parts.\n{answering}")


SILENT = {
    "scene asked for": [
        (
            f"Write a scene between Tom and Ann, number {i}.",
            f"It rains.\n\nTom: Why {i}?\nAnn: Because.\nTom: I see.",
        )
        for i in range(5)
    ],
    "faq asked for": [
        (
            f"Create an FAQ on tool {i}.",
            f"About tool {i}.\n\nQ: What is it?\nA: A tool.\nQ: Is it free?\nA: It is.",
        )
        for i in range(5)
    ],
    "form": [
        (f"Book table {i}.", f"It is booked.\n\nName: Ann {i}\nDate: Monday\nTable: {i}")
        for i in range(5)
    ],
    "repeated fields": [
        (
            f"Which laptop, offer {i}?",
            f"Two fit.\n\nModel: X{i}\nPrice: 90{i}\n\nModel: Y{i}\nPrice: 80{i}",
        )
        for i in range(5)
    ],
    "pros and cons": [
        (f"Is tool {i} good?", f"It depends on use {i}.\n\nPros: It is light.\nCons: It is slow.")
        for i in range(5)
    ],
    "introduced": [
        (
            f"How do I greet, case {i}?",
            f"Say it like this, {i}:\n\nGuest: Hello?\nHost: Welcome.\nGuest: Thanks!",
        )
        for i in range(5)
    ],
    "few-shot prompt": [
        (
            f"Q: What is {i}?\nA: A number.\nQ: And {i + 1}?",
            f"Also one.\n\nQ: Why?\nA: It counts {i}.",
        )
        for i in range(5)
    ],
}


@pytest.mark.parametrize("name", SILENT)
def test_near_misses_are_silent(name: str, tmp_path: Path) -> None:
    assert DIALOGUE not in rules(tmp_path / "rows.jsonl", SILENT[name])


def test_score_does_not_say_that_such_answers_stop_by_themselves() -> None:
    pairs = talk("Customer:", "Agent:", 12)
    report = score([a for _, a in pairs], prompts=[p for p, _ in pairs], stopped=[True] * 12)
    found = {finding.rule: finding for finding in report.findings}
    assert "answers-continue-the-dialogue" in found["role-markers-in-answers"].remedy
    asked = SILENT["scene asked for"] * 3
    report = score(
        [a for _, a in asked], prompts=[p for p, _ in asked], stopped=[True] * len(asked)
    )
    assert "role-markers-in-answers" not in {finding.rule for finding in report.findings}


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("{'a': None, 'b': True}", "python"),
        ("[{'a': 1}]", "python"),
        ("['x', 'y']", "python"),
        ('{"a": 1,}', "trailing comma"),
        ('{"a": NaN}', "not a number"),
        ('```json\n{"a": 1}\n```', "fenced"),
        ('{"a": "NaN, it says"}', "json"),
        ("[1, 2]", "json"),
        ('Here is the JSON:\n\n```json\n{"a": 1}\n```', "worded fence"),
        ('Sure! Here you go: {"a": 1}', "worded"),
        ('Here is the JSON:\n{"a": [1]}\nLet me know if it helps.', "worded"),
        ('A long explanation.\nSecond line:\n{"a": 1}', None),
        ("Here is the JSON:\n{'a': None}", None),
        ("{name} is here {today}", None),
        ("[see 'this']", None),
        ("{'open", None),
        ("plain words", None),
    ],
)
def test_serialization(text: str, form: str | None) -> None:
    assert serialization_of_object_or_list(text) == form


def answers(prompt: str, *forms: str, n: int = 8) -> list[Pair]:
    """Rows with one prompt and answers of these forms in turn."""
    return [(f"{prompt} ({i})", forms[i % len(forms)].replace("#", str(i))) for i in range(n)]


@pytest.mark.parametrize(
    "pairs",
    [
        answers("Answer as JSON", "{'id': '#', 'paid': None}"),
        answers("Return a JSON object", '{"id": #, "paid": true,}'),
        answers("JSON only", '```json\n{"id": #}\n```', '{"id": #}'),
        answers("Gib JSON zurück", "[{'id': '#'}]"),
        answers("JSON list of names", "['x', '#']"),
        answers("JSON only", 'Sure! Here is the JSON:\n{"id": #}', '{"id": #}'),
        answers("JSON only", 'Here is the data:\n\n```json\n{"id": #}\n```', '{"id": #}'),
        answers("JSON only", 'Voici le JSON :\n```json\n{"id": #}\n```', n=24),
        answers("JSON only", '```json\n{"id": #}\n```', n=24),
    ],
)
def test_answers_that_are_no_json(pairs: list[Pair], tmp_path: Path) -> None:
    assert NO_JSON in rules(tmp_path / "rows.jsonl", pairs)


@pytest.mark.parametrize(
    "pairs",
    [
        answers("Answer as JSON", '{"id": #, "paid": null}'),
        answers("Return a Python dict, as in JSON", "{'id': '#'}"),
        answers("JSON only", '```json\n{"id": #}\n```'),
        answers("Explain JSON", "{'id': #} has the wrong quotes."),
        answers("Explain JSON", 'A field looks so:\n{"id": #}', "It is text, #.", "No, #.", n=30),
        answers("Say it", 'Here it is:\n{"id": #}', '{"id": #}', n=30),
        answers("JSON", 'First this.\nThen that.\nAnd so:\n{"id": #}', "Text #.", n=30),
        answers("Say a number as JSON", "N"),
    ],
)
def test_sound_answers_are_silent(pairs: list[Pair], tmp_path: Path) -> None:
    assert NO_JSON not in rules(tmp_path / "rows.jsonl", pairs)


def test_fenced_answers_with_a_lead_are_counted_with_it(tmp_path: Path) -> None:
    pairs = answers(
        "JSON only",
        'Here is the JSON:\n\n```json\n{"id": #}\n```',
        '```json\n{"id": #}\n```',
        '{"id": #}',
        n=30,
    )
    rows = [
        {"messages": [{"role": "user", "content": p}, {"role": "assistant", "content": a}]}
        for p, a in pairs
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = next(one for one in truetune.check(str(path)).findings if one.rule == NO_JSON)
    assert found.message.startswith(
        "20 of 30 rows have their JSON in a fence (```json) (10 of them after words such as 'Here is the JSON:'), and"
        " 10 have it bare"
    )
