"""Code that does not parse, offsets, texts cut at one length, labels of other rows, outputs of failed scripts."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.checks.test_answers_beside_their_requests import asked, found
from truetune.checks.find_labels_of_other_rows_by_words import find_label_shift, find_renamed_labels
from truetune.checks.rows.answers_ignore_a_countable_request import _judge_requests
from truetune.checks.rows.evidence.broken_code import (
    does_prompt_ask_for_python_3,
    judge_code_in_text,
)
from truetune.checks.rows.evidence.damage_of_texts import find_damage

CODE = "code-in-answers-is-broken"
CUT = "prompts-are-cut-at-one-length"
OFFSETS = "offsets-do-not-mark-their-text"


def fenced(tag: str, code: str) -> str:
    return f"```{tag}\n{code}\n```"


@pytest.mark.parametrize(
    "text",
    [
        fenced("python", "für i in Bereich(3):\n    drucken(i)"),
        fenced("python", "print(“hello”)"),
        fenced("py", "x\u00a0=\u00a0[1, 2]\nprint(x"),
        "So geht es:\n\nfür i in Bereich(0, 38, 2):\n    drucken(i)",
        "definiere add(a, b):\n    rückgabe sum([a, b])",
        fenced("java", "int f(int a) {\n  return a;\n"),
        fenced("js", "const f = (x) => {\n  return [x, 1;\n}"),
        fenced("cpp", "#include \nint main() { return 0; }"),
        fenced("sql", "WÄHLEN name VON kunden;"),
        fenced("json", '{"a": 1,\n "b" 2}'),
        fenced("html", "<ul>\n<li>one\n<div>two</ul>"),
    ],
)
def test_broken_code(text: str) -> None:
    assert any(piece.fault for piece in judge_code_in_text(text))


@pytest.mark.parametrize(
    "text",
    [
        fenced("python", "for i in range(3):\n    print(i)"),
        fenced("python", ">>> f(1)\n2"),
        fenced("python", "print 'two'"),
        fenced("python", "!pip install peft\nimport peft"),
        fenced("python", "    return x\n"),
        fenced("python", "client = Client(<your key>)"),
        fenced("python", "def area(a, b):\n"),
        fenced("js", "const s = 'a) b'; // one )\nconst r = `${f(\"(\")}`;"),
        fenced("java", "char c = '(';\nString s = \"}\";"),
        fenced("java", "class A {\n  ...\n"),
        fenced("sql", "[the query]"),
        fenced("json", '{"a": 1, ...}'),
        fenced("html", "<p>one<br><p>two <img src='a.png'>"),
        fenced("yaml", "a:\n  b: f("),
        "Steps:\n\n1. Do this (first):\n    f(x) = 2\n",
        "The relation holds for x > 2, and gives us:\n\nWe see f(x) = 2.",
    ],
)
def test_code_that_is_right_or_not_judged(text: str) -> None:
    assert not any(piece.fault for piece in judge_code_in_text(text))


def test_a_few_broken_pieces_are_no_finding(tmp_path: Path) -> None:
    good, bad = fenced("python", "print(1)"), fenced("python", "print(1")
    rows = [(f"Print it, case {i}.", bad if i % 6 == 0 else good) for i in range(40)]
    assert not found(tmp_path, asked(rows), CODE)
    rows = [(f"Print it, case {i}.", bad if i % 3 == 0 else good) for i in range(40)]
    assert found(tmp_path, asked(rows), CODE) == {CODE}


PYTHON_2 = (
    "print 'two', n",
    "for n in a:\n    print n",
    "try:\n    f()\nexcept ValueError, error:\n    pass",
    "raise ValueError, 'no'",
    "exec 'a = 1'",
)


@pytest.mark.parametrize("code", PYTHON_2)
def test_python_2_is_broken_where_python_3_is_asked_for(code: str) -> None:
    text = fenced("python", code)
    (piece,) = judge_code_in_text(text, is_python_3_asked=True)
    assert (bool(piece.fault), piece.is_python_2) == (True, True)
    assert not list(judge_code_in_text(text))


@pytest.mark.parametrize(
    "code",
    [
        "print('two', n)",
        '"""\nprint this, and\nraise no, error\n"""\nprint(1)',
        # Nobody knows whether the version or the bracket is what was meant.
        "f(1\nprint 'two'\n",
    ],
)
def test_python_3_and_what_is_broken_in_both_are_no_python_2(code: str) -> None:
    pieces = judge_code_in_text(fenced("python", code), is_python_3_asked=True)
    assert not any(piece.is_python_2 for piece in pieces)


@pytest.mark.parametrize(
    ("prompt", "asks"),
    [
        ("Write a helper for Python 3.11: a sum.", True),
        ("Use Python3, please.", True),
        ("Use py3, please.", True),
        ("Write a helper in Python: a sum.", False),
        ("Convert this from Python 2 to Python 3.", False),
        ("Why does this fail in Python 3?\nprint 'a'", False),
        ("Run 2to3, so that Python 3 takes it.", False),
    ],
)
def test_prompts_that_ask_for_python_3(prompt: str, asks: bool) -> None:
    assert does_prompt_ask_for_python_3(prompt) == asks


def test_a_set_with_python_2_for_python_3(tmp_path: Path) -> None:
    old, new = fenced("python", "print 'a', n"), fenced("python", "print('a', n)")
    rows = [(f"Print n in Python 3, case {i}.", old if i % 6 == 0 else new) for i in range(40)]
    assert found(tmp_path, asked(rows), CODE) == {CODE}
    rows = [(f"Print n in Python, case {i}.", old if i % 6 == 0 else new) for i in range(40)]
    assert not found(tmp_path, asked(rows), CODE)


@pytest.mark.parametrize(
    ("prompt", "right", "wrong"),
    [
        ("Compare both in a markdown table.", "| a | b |\n|---|---|", "a is b."),
        ("Summarize it as bullet points.\nIt is long.", "- It is.\n- It was.", "It is. It was."),
        ("Solve it.\nassert area(2) == 4", "def area(a):\n    return a * a", "def solution(a): 1"),
        ("Write a class named Stack for it.", "class Stack:\n    pass", "class Solution:\n    1"),
        ("CREATE TABLE a (b INT);\nHow many?", "SELECT COUNT(*) FROM a", "SELECT * FROM c JOIN d"),
        ("Translate to German: It has 1,250 seats.", "Es hat 1.250 Plätze.", "Es hat Plätze."),
    ],
)
def test_requests_that_a_program_can_judge(prompt: str, right: str, wrong: str) -> None:
    assert [fault for _, fault in _judge_requests(prompt, right)] == [""]
    assert all(fault for _, fault in _judge_requests(prompt, wrong))


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Create a SQL table for it.", "CREATE TABLE a (b INT);"),
        ("Book a table for two at eight.", "Done."),
        ("Write a function.\nassert sorted(f(2)) == [1]", "def f(a):\n    return [1]"),
        ("CREATE TABLE a (b INT);\nHow many?", "WITH c AS (SELECT * FROM a) SELECT * FROM c"),
        ("Explain the __( 'Settings 1200' ) translation helper.", "It returns the text."),
        ("Translate to French: I am 20 years old.", "J'ai 20 ans."),
    ],
)
def test_answers_that_are_as_asked(prompt: str, answer: str) -> None:
    assert not any(fault for _, fault in _judge_requests(prompt, answer))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("content='It is open.' additional_kwargs={} response_metadata={}", "objects as a program"),
        ("The answer is tensor(42).", "objects as a program"),
        ("3    It is open...\nName: output, dtype: object", "objects as a program"),
        ("Error code: 429 - {'error': {'type': 'insufficient_quota'}}", "error messages"),
        ("Request timed out.", "error messages"),
        ("We get frac{1}{2} and sqrt{4}.", "formulas without their backslashes"),
        ("We get $\\frac{1}{2}, and \\sqrt{4} is two.", "formulas that never close"),
        ("רפס תיבב ןנגנל דמלו םוי לכ", "Arabic or Hebrew"),
        (unicodedata.normalize("NFD", "Die Tür ist größer für Gäste."), "accents"),
    ],
)
def test_outputs_of_failed_scripts(text: str, kind: str) -> None:
    damage = find_damage(text, "Is it so?")
    assert damage is not None
    assert damage.kind.name.startswith(kind)


@pytest.mark.parametrize(
    "text",
    [
        "The request timed out because the road was closed.",
        "A tensor is an array of numbers.",
        "It costs $5, and \\(\\frac{1}{2}\\) of that is $2.50.",
        "The frac{} of TeX is a command.",
        "אני לומד לנגן בגיטרה בבית ספר קטן עם חברים",
        "Die Tür ist größer für Gäste.",
    ],
)
def test_texts_that_no_script_wrote(text: str) -> None:
    assert find_damage(text, "Is it so?") is None


def spans(shift: int) -> list[dict[str, Any]]:
    text = "It was written by Ada in 1843."
    answers = {"text": ["Ada"], "answer_start": [text.index("Ada") + shift]}
    row = {"context": text, "answers": answers, "answer": "Ada"}
    return [{"question": f"Who, {i}?", **row} for i in range(12)]


def test_offsets(tmp_path: Path) -> None:
    assert found(tmp_path, spans(2), OFFSETS) == {OFFSETS}
    assert not found(tmp_path, spans(0), OFFSETS)
    # The space before a stripped span is passed over.
    assert not found(tmp_path, spans(-1), OFFSETS)


def test_words_of_speech_have_times_and_no_offsets(tmp_path: Path) -> None:
    """Milliseconds, as programs that transcribe speech write them beside each word."""
    text = "So we met at the harbour in the morning."
    words = [
        {"text": word, "start": 480 * n, "end": 480 * n + 300}
        for n, word in enumerate(text.split())
    ]
    rows = [
        {
            "question": f"What is said, {i}?",
            "context": text,
            "labels": words,
            "answer": "A meeting.",
        }
        for i in range(12)
    ]
    assert not found(tmp_path, rows, OFFSETS)


WORDS = (
    "river", "stone", "market", "window", "garden", "letter", "silver", "bridge", "candle", "harbour", "winter",
    "paper",
)  # fmt: skip


def texts(count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    words = (*WORDS, "the", "of", "and")
    return [" ".join(rng.choices(words, k=rng.randint(14, 30))) + "." for _ in range(count)]


def in_prompts(lines: Sequence[str]) -> list[dict[str, str]]:
    prompts = [f"Read it.\n\nText: {line}\n\nWhat is {i}?" for i, line in enumerate(lines)]
    return asked([(prompt, "Yes, it is.") for prompt in prompts])


def test_texts_cut_at_one_length(tmp_path: Path) -> None:
    whole = texts(60)
    assert not found(tmp_path, in_prompts(whole), CUT)
    assert found(tmp_path, in_prompts([text[:100] for text in whole]), CUT) == {CUT}
    assert found(tmp_path, in_prompts([" ".join(text.split()[:18]) for text in whole]), CUT) == {
        CUT
    }
    # Filled-in templates have one end, or piles at several lengths.
    filled = [f"the number of the house is now {i * 7} and so on for all" for i in range(90)]
    assert not found(tmp_path, in_prompts(filled), CUT)
    named = [f"the house of our good old friends is near the {WORDS[i % 12]}" for i in range(90)]
    assert not found(tmp_path, in_prompts(named), CUT)


def labelled(count: int = 240) -> tuple[list[str], list[str]]:
    rng = random.Random(3)
    names = ("billing", "refund", "travel", "music")
    labels = [rng.choice(names) for _ in range(count)]
    own = {name: WORDS[3 * i : 3 * i + 3] for i, name in enumerate(names)}
    lines = [" ".join(rng.choices(own[label], k=3) + rng.choices(WORDS, k=4)) for label in labels]
    return lines, labels


@pytest.mark.parametrize("offset", [-2, 1])
def test_labels_of_other_rows(offset: int) -> None:
    lines, labels = labelled()
    moved = [labels[(i - offset) % len(labels)] for i in range(len(labels))]
    shift = find_label_shift(lines, moved)
    assert shift is not None
    assert shift.offset == offset
    later = find_label_shift(lines, [*labels[:120], *moved[120:]])
    assert later is not None
    assert later.first == 120


@pytest.mark.parametrize("change", ["none", "shuffled", "sorted", "in turn"])
def test_labels_of_their_own_rows(change: str) -> None:
    lines, labels = labelled()
    pairs: Sequence[tuple[str, str]] = list(zip(lines, labels, strict=True))
    if change == "shuffled":
        labels = random.Random(1).sample(labels, len(labels))
    elif change == "sorted":
        lines, labels = map(list, zip(*sorted(pairs, key=lambda one: one[1]), strict=True))
    elif change == "in turn":
        groups = [[pair for pair in pairs if pair[1] == name] for name in sorted(set(labels))]
        lines, labels = map(
            list, zip(*[one for turn in zip(*groups, strict=False) for one in turn], strict=True)
        )
    assert find_label_shift(lines, labels) is None
    assert find_renamed_labels(lines, labels) is None


def test_labels_that_mean_other_classes() -> None:
    lines, labels = labelled()
    other = {"billing": "refund", "refund": "travel", "travel": "music", "music": "billing"}
    renamed = find_renamed_labels(lines, [*labels[:120], *(other[one] for one in labels[120:])])
    assert renamed is not None
    assert renamed.first == 120
    assert other[renamed.example[1]] == renamed.example[0]


def test_unfilled_places_and_names(tmp_path: Path) -> None:
    rule = "instructions-lack-their-text"
    rows = [("Answer the question well.\n\nQuestion: {question}", f"It is {i}.") for i in range(12)]
    assert found(tmp_path, asked(rows), rule) == {rule}
    about = [
        (f"What does {{name}} mean in a Python string, case {i}?", "A place.") for i in range(12)
    ]
    assert not found(tmp_path, asked(about), rule)


@pytest.mark.parametrize(("name", "is_other"), [("Ada", False), ("Max", True)])
def test_names_beside_the_system_prompt(tmp_path: Path, name: str, is_other: bool) -> None:
    rule = "answers-name-another-assistant"
    rows = [
        {
            "messages": [
                {"role": "system", "content": "You are Ada, the assistant of a shop."},
                {"role": "user", "content": f"Is number {i} open?"},
                {"role": "assistant", "content": f"Hello, this is {name}. Number {i} is open."},
            ]
        }
        for i in range(12)
    ]
    assert found(tmp_path, rows, rule) == ({rule} if is_other else set())


@pytest.mark.parametrize(("stride", "overlaps"), [(20, True), (40, False)])
def test_chunks_that_overlap(tmp_path: Path, stride: int, overlaps: bool) -> None:
    rule = "neighbouring-texts-overlap"
    words = " ".join(texts(40)).split()
    chunks = [" ".join(words[i : i + 40]) for i in range(0, 400, stride)]
    rows = [{"text": chunk} for chunk in chunks]
    assert found(tmp_path, rows, rule) == ({rule} if overlaps else set())
    # Texts that begin with the same heading have no overlap.
    headed = [{"text": f"{' '.join(words[:30])} {chunk}"} for chunk in chunks[::2]]
    assert not found(tmp_path, headed, rule)
