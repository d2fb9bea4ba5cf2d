"""Parsers that are right pass the proof in silence; wrong ones, as they are met in the wild, are told with examples."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.parts import data
from truetune.checks.findings import Finding
from truetune.checks.rule import EvaluationRule
from truetune.checks.rule_catalogue import select_rules
from truetune.evaluation.try_parser import add_model_answers, try_parser
from truetune.generation.answer_parsers_named_by_user import make_parser
from truetune.generation.evaluation_loss_and_score_types import EvaluationResults
from truetune.generation.final_answers import find_final_answer, holds_final_answer
from truetune.generation.parser_selftest_results import ParserSelftest

CHOICE = random.Random(7)
COUNTS = [CHOICE.randint(2, 99) for _ in range(40)]
SUMS = [
    f"He picks {a}, then {b}. {a} + {b} = {a + b}.\n#### {a + b}"
    for a, b in itertools.pairwise(COUNTS)
]
SPOKEN = [f"There are {a} in 3 boxes. The answer is {a}." for a in COUNTS]
PRICES = [f"#### {1000 + 37 * a:,}" for a in COUNTS]
LETTERS = [CHOICE.choice("ABCD") for _ in range(40)]
REASONED = [f"A mast is too long, and (B) sinks. The answer is ({letter})." for letter in LETTERS]
VERDICTS = [CHOICE.choice(("spam", "ham")) for _ in range(40)]
THOUGHT = [f"<think>\nIt may be 3.\n</think>\n\n{a}" for a in COUNTS]
CALLS = [
    json.dumps({"name": f"weather_{city}", "arguments": {"city": city, "days": day}})
    for city in ("Oslo", "Rome", "Lima")
    for day in range(1, 5)
]


def told(proof: ParserSelftest) -> dict[str, Finding]:
    """Code -> finding."""
    rules = [
        rule for rule in select_rules([], [], "evaluation") if issubclass(rule, EvaluationRule)
    ]
    found = [
        finding
        for rule in rules
        for finding in rule(EvaluationResults(rows=20, parser=proof)).findings()
    ]
    return {finding.code: finding for finding in found}


RIGHT: list[tuple[str, Any, list[str]]] = [
    ("number", None, SUMS), ("number", None, SPOKEN), ("number", None, PRICES), ("number", None, THOUGHT),
    ("choice", None, LETTERS), ("choice", None, REASONED), ("choice:A-D", None, REASONED), ("json", None, CALLS),
    (r"regex:#### (\d+)", None, SUMS), (r"regex:(?i)answer is \(([A-D])\)", None, REASONED),
    ("regex:^(spam|ham)$", None, VERDICTS), ("a name", lambda text: json.loads(text)["name"], CALLS),
    ("a flag", lambda text: {"spam": True, "ham": False}[text], VERDICTS), ("the text", str.strip, VERDICTS),
    ("an index", {letter: i for i, letter in enumerate("ABCD")}.__getitem__, LETTERS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "parse", "golds"), RIGHT)
def test_right_parsers_pass_in_silence(name: str, parse: Any, golds: list[str]) -> None:
    proof = try_parser(parse or make_parser(name), golds, name=name)
    assert proof.read == proof.golds == len(golds)
    assert proof.empty == 0
    if proof.chance is not None:
        assert proof.shuffled == pytest.approx(proof.chance)
    assert told(proof) == {}


def last_letter(text: str) -> str:
    return re.findall(r"[A-D]", text)[-1]


def zero_by_default(text: str) -> int:
    found = re.search(r"Answer: (\d+)", text)
    return int(found[1]) if found else 0


def behind_the_thought(text: str) -> str:
    return text.split("</think>")[1]


def counting() -> Callable[[str], Any]:
    calls = itertools.count(1)
    return lambda text: (None, next(calls))


PARSER_RULES = {"EVAL005", "EVAL006", "EVAL007"}

WRONG: list[tuple[str, Any, list[str], set[str], str]] = [
    # the pattern of another prompt: lm-eval#2707, lm-eval#3404
    (r"regex:#### (\d+)", None, SPOKEN, {"EVAL005"}, "scores 0.00 (0 of 40)"),
    # an empty parse equals an empty gold: lm-eval#700, RapidFireAI/rapidfireai#258
    ("all matches", lambda text: re.findall(r"#### (\d+)", text), SPOKEN, PARSER_RULES, "0 of 40"),
    ("a default", zero_by_default, SPOKEN, PARSER_RULES, "0 of 40"),
    (r"regex:([A-D]?)", None, [f"The answer: {letter}" for letter in LETTERS], PARSER_RULES, "0 of 40"),
    # the first where the last is meant: lm-eval#2237
    (r"regex:(\d+)", None, SUMS, {"EVAL005"}, "on the gold answers themselves"),
    (r"regex:\(([A-D])\)", None, REASONED, {"EVAL005", "EVAL006"}, "on the gold answers themselves"),
    # the last where the named one is meant
    ("the last letter", last_letter, [f"The answer is {x} because A is wet." for x in LETTERS],
     {"EVAL005", "EVAL006", "EVAL007"}, "on the gold answers themselves"),
    # grouped digits: lm-eval's GSM8K
    (r"regex:#### (\d+)", None, PRICES, {"EVAL005", "EVAL006"}, "on the gold answers themselves"),
    # a dot or a comma goes with the number: it is compared as text
    (r"regex:answer is ([\d.,]+)", None, [gold[:-1] for gold in SPOKEN], {"EVAL005"}, "other formats"),
    # the A of Answer and of an article is choice A: lm-eval#2238
    ("regex:[A-D]", None, LETTERS, {"EVAL005", "EVAL007"}, "other formats"),
    # blind: any text is true
    ("is there one", bool, VERDICTS, {"EVAL006", "EVAL007"}, "1.00 with shuffled gold answers; 0.5"),
    # "".index is 0: an empty answer is choice A
    ("an index", "ABCD".index, LETTERS, {"EVAL005", "EVAL007"}, "on the gold answers themselves"),
    # part of the value
    (r"regex:(\d)", None, [str(count) for count in COUNTS], {"EVAL005", "EVAL006"}, "on the gold answers themselves"),
    # JSON compared as text
    ("the JSON's text", str.strip, CALLS, {"EVAL005"}, "other formats"),
    # the reasoning is cut off before, and once more by the parser
    ("behind the thought", behind_the_thought, THOUGHT, {"EVAL005"}, "scores 0.00"),
    # state, and time that doubles with each character
    ("a counter", counting(), VERDICTS, {"EVAL008"}, "differently a second time"),
    (r"regex:^(?:\w+\s?)*$", None, VERDICTS, {"EVAL008"}, "s for one answer"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "parse", "golds", "codes", "says"), WRONG)
def test_wrong_parsers_are_caught(
    name: str, parse: Any, golds: list[str], codes: set[str], says: str
) -> None:
    found = told(try_parser(parse or make_parser(name), golds, name=name, seconds=0.3))
    assert set(found) == codes
    first = found[min(found)]
    assert name in first.message
    assert says in first.message
    assert all(finding.cases for finding in found.values())


def test_an_example_shows_gold_reading_and_row() -> None:
    found = told(try_parser(make_parser(r"regex:(\d+)"), SUMS, name="first"))["EVAL005"]
    text = found.cases[0].text
    assert f"is read as '{COUNTS[0]}'" in text
    assert f"expected {COUNTS[0] + COUNTS[1]}" in text
    assert text.startswith("gold 1, ")


def test_chance_is_that_of_the_golds() -> None:
    proof = try_parser(make_parser("choice"), ["A", "A", "A", "B"], name="choice")
    assert proof.chance == proof.shuffled == 3 / 6
    assert (
        str(proof)
        == "choice: reads 4 of 4 gold answers; shuffled ones score 0.50, chance is 0.50; empty ones"
        " 0.00"
    )
    assert try_parser(make_parser("choice"), ["A"] * 9, name="choice").chance == 1.0
    assert told(try_parser(make_parser("choice"), ["A"] * 9, name="choice")) == {}
    assert try_parser(make_parser("choice"), [], name="choice").golds == 0


def test_questions_that_score_are_told() -> None:
    golds = [f"{a} apples" for a in range(20)]
    proof = try_parser(
        make_parser("number"),
        golds,
        name="number",
        questions=[f"Repeat: {a} apples" for a in range(20)],
    )
    assert told(proof)["EVAL007"].severity == "warning"
    others = try_parser(
        make_parser("number"),
        golds,
        name="number",
        questions=[f"{a} and one?" for a in range(20, 40)],
    )
    assert told(others) == {}


def test_right_answers_that_are_not_read_are_told() -> None:
    golds = [f"#### {a}" for a in COUNTS]
    proof = try_parser(make_parser(r"regex:#### (\d+)"), golds, name="strict")
    said = [f"The answer is {a}." for a in COUNTS[:30]] + golds[30:]
    found = told(add_model_answers(proof, make_parser(r"regex:#### (\d+)"), golds, said))["EVAL009"]
    assert (found.count, found.total) == (30, 40)
    wrong = [f"The answer is {a + 1}." for a in COUNTS]
    assert told(add_model_answers(proof, make_parser(r"regex:#### (\d+)"), golds, wrong)) == {}


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("3 + 4 = 7\n#### 7", "number", "7"),
        ("The final answer is $1,234.50.", "number", "1234.5"),
        ("-3", "number", "-3"),
        ("So \\boxed{\\text{B}}", "letter", "B"),
        ("Answer: (C)", "letter", "C"),
        ("B) Paris", "letter", "B"),
        ("The answer is A because it is.", "letter", "A"),
        ("A lighthouse on a cliff by the sea", None, None),
        ("3 apples", "number", "3"),
        ("Not spam.", "word", "not spam"),
        ("答案是B", "letter", "B"),
        ('{"b": 1, "a": 2}', "json", '{"a": 2, "b": 1}'),
        ("The answer is 3 + 4 = 7", None, None),
        ("", None, None),
        ("<think>7</think>8", "number", "8"),
        ("The answer is a lighthouse on a hill.", None, None),
    ],
)
def test_final_answers(text: str, kind: str | None, value: str | None) -> None:
    found = find_final_answer(text)
    assert (found and found.kind, found and found.value) == (kind, value)


@pytest.mark.parametrize(
    ("answer", "gold", "held"),
    [
        ("So it is **12**.", "#### 12", True),
        ("12 of 13", "#### 12", False),
        ("It is Paris!", "paris", True),
        ("Parisian", "Paris", False),
        ('Call: {"b":1, "a":2} now', '{"a": 2, "b": 1}', True),
        ("{}", '{"a": 2}', False),
        ("B", "The answer is B.", True),
        ("A B C", "The answer is B.", False),
    ],
)
def test_answers_that_hold_the_gold(answer: str, gold: str, held: bool) -> None:
    assert holds_final_answer(answer, gold) is held


def test_real_tool_calls() -> None:
    rows = json.loads(data("llamafactory/glaive_toolcall_en_demo.json").read_text(encoding="utf-8"))
    calls = [
        turn["value"]
        for row in rows
        for turn in row["conversations"]
        if turn["from"] == "function_call"
    ]
    assert len(calls) > 100
    assert told(try_parser(make_parser("json"), calls, name="json")) == {}
    assert set(told(try_parser(str.strip, calls, name="as text"))) == {"EVAL005"}


class Hostile:
    """Raises whatever is done with it."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __repr__(self) -> str:
        raise RuntimeError

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    "parse",
    [
        lambda text: Hostile(),
        lambda text: np.ones(2),
        lambda text: float("nan"),
        lambda text: 1 / 0,
    ],
)
def test_a_parser_can_do_nothing_to_the_proof(parse: Any) -> None:
    golds = ["", "9" * 5000, "#### 9" + "9" * 5000, "\ud800", '{"a": [', "灯塔", "The answer is ²."]
    proof = try_parser(parse, golds, name="hostile", questions=golds)
    assert proof.read == 0
    assert set(told(proof)) == {"EVAL005"}
    assert add_model_answers(proof, parse, golds, golds).answers == len(golds)
