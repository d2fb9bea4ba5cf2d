"""Answers that contradict their prompts, their reasoning or the other rows, and others that only look so."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.find_answer_shift_by_quantities import find_answer_shift
from truetune.checks.forms_of_json_values import do_forms_contradict, form_of_value
from truetune.checks.options_named_in_words import options_named_in_words
from truetune.checks.pairs.evidence.marks_of_form_in_answers import marks_of_form_in
from truetune.checks.rows.answers_share_a_mark_at_their_ends import _marks_of
from truetune.checks.rows.equations_in_answers_are_wrong import EQUATION, _is_right
from truetune.settings.run_spec import RunSpec

NAMES = ("Ada Ruiz", "Tom Wald", "Eva Lind", "Ivo Marek", "Mia Sand", "Leo Berg", "Ann Frey")


def found(folder: Path, rows: Sequence[dict[str, Any]], *rules: str) -> set[str]:
    """Which of these rules have a warning or an error on these rows."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = check_paths([str(path)], RunSpec(select=rules))
    return {one.rule for one in report.findings if one.severity != "info"}


def asked(pairs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"instruction": question, "output": answer} for question, answer in pairs]


OPTIONS = "answer-is-none-of-the-options"
LETTERS = "Which one, case {i}?\nA) sand\nB) rock\nC) clay\nD) loam"
WORDS = "Case {i} is long. Answer with one of: billing, refund, other."


@pytest.mark.parametrize(
    ("prompt", "answers"),
    [
        (LETTERS, ("E",)),
        (LETTERS, ("0", "1", "2")),
        (LETTERS, ("B) sand", "A) rock", "C) clay")),
        (WORDS, ("billing", "refund", "complaint")),
        ("Is {i} even? Answer with yes or no.", ("yes", "maybe", "no")),
        ("Label the text {i} (positive/negative/neutral).", ("positive", "mixed", "neutral")),
    ],
)
def test_answers_that_are_no_option(tmp_path: Path, prompt: str, answers: Sequence[str]) -> None:
    rows = [(prompt.format(i=i), answers[i % len(answers)]) for i in range(24)]
    assert found(tmp_path, asked(rows), OPTIONS) == {OPTIONS}


@pytest.mark.parametrize(
    ("prompt", "answers"),
    [
        (LETTERS, ("A", "B", "(d)", "C.")),
        (LETTERS, ("A) sand", "B) rock", "D. loam")),
        ("How many legs have {i} cats?\nA) 4\nB) 8\nC) 2\nD) 6", ("8", "4")),
        (WORDS, ("billing", "refund", "other")),
        ("Options: write a long text about {i}, or a short one: both are right.", ("Here.", "So.")),
        (
            "Choose from: red, blue. Explain your choice in case {i}.",
            ("Red, since it is warm. " * 3,),
        ),
    ],
)
def test_answers_that_are_options(tmp_path: Path, prompt: str, answers: Sequence[str]) -> None:
    rows = [(prompt.format(i=i), answers[i % len(answers)]) for i in range(24)]
    assert found(tmp_path, asked(rows), OPTIONS) == set()


def test_numbers_in_brackets_are_no_lists_of_answers(tmp_path: Path) -> None:
    """Each exercise has a pair of its own behind `answer in the form`, and a result of its own."""
    rows = [
        (f"Turn ({i}, 3) into polar form. Answer in the form (r{i}, t{i}).", f"{i * 7}")
        for i in range(24)
    ]
    assert found(tmp_path, asked(rows), OPTIONS) == set()


def test_lists_of_options_in_words() -> None:
    assert options_named_in_words("Reply with one of: a, b, or c.") == ("a", "b", "c")
    assert options_named_in_words("Labels: [spam, ham]") == ("spam", "ham")
    assert options_named_in_words("Say true or false") == ("true", "false")
    assert options_named_in_words("Write a text about tea, milk and honey.") == ()
    assert options_named_in_words("Answer the question: why do birds fly so far, and where?") == ()


LABELS = "labels-are-inconsistent"


@pytest.mark.parametrize(
    ("answers", "rule"),
    [
        (("positive", "Positive", "negative"), {LABELS}),
        (("billing_issue", "billing issue", "refund"), {LABELS}),
        (("spam", "ham", "spam."), {LABELS}),
        (("yes", "YES", "no"), {LABELS}),
        (("1", "2", "3"), set()),
        (("positive", "negative", "neutral"), set()),
        (("us", "uk", "usa"), set()),
    ],
)
def test_spellings_of_labels(tmp_path: Path, answers: Sequence[str], rule: set[str]) -> None:
    rows = [(f"Judge text {i}.", answers[i % len(answers)]) for i in range(36)]
    assert found(tmp_path, asked(rows), LABELS) == rule


def test_texts_with_two_labels(tmp_path: Path) -> None:
    rows = [(f"Judge text {i % 20}.", "spam" if i < 20 else "ham") for i in range(40)]
    assert found(tmp_path, asked(rows), LABELS) == {LABELS}
    rows = [(f"Judge text {i % 20}.", "spam" if i % 2 else "ham") for i in range(40)]
    assert found(tmp_path, asked(rows), LABELS) == set()


JSON = "json-answers-differ-in-form"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"total": 12.5}, {"total": "12.5"}),
        ({"day": "2024-03-05"}, {"day": "05/03/2024"}),
        ({"tags": ["a"]}, {"tags": "sea and sand"}),
        ({"is_open": True}, {"is_open": "true"}),
        ({"order_date": "x"}, {"orderDate": "x"}),
        ({"item": {"price": 3}}, {"item": {"price": "$3.00"}}),
    ],
)
def test_fields_in_two_forms(tmp_path: Path, one: dict[str, Any], other: dict[str, Any]) -> None:
    rows = [(f"Give {i} as JSON.", json.dumps(other if i % 4 == 0 else one)) for i in range(40)]
    assert found(tmp_path, asked(rows), JSON) == {JSON}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"total": 12.5}, {"total": 13}),
        ({"total": 12.5}, {"total": None}),
        ({"name": "Ada", "age": 3}, {"name": "Tom"}),
        ({"note": "sea"}, {"note": "2024-03-05"}),
        ({"start": "x", "end": "y"}, {"end": "y"}),
        ({"value": {"a": 1}}, {"value": "text"}),
    ],
)
def test_fields_in_one_form(tmp_path: Path, one: dict[str, Any], other: dict[str, Any]) -> None:
    rows = [(f"Give {i} as JSON.", json.dumps(other if i % 4 == 0 else one)) for i in range(40)]
    assert found(tmp_path, asked(rows), JSON) == set()


def test_forms_of_values() -> None:
    assert form_of_value("1,200.50") == "a number as a text"
    assert form_of_value("12,50") == "a number as a text with a decimal comma"
    assert form_of_value("12 kg") == "a number with its unit"
    assert form_of_value("5 March 2024") == "a date in words"
    assert not do_forms_contradict("a text", "a number as a text")


REASONING = "answer-contradicts-its-reasoning"


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        ("<think>{i} and 100 is 1{i}.</think>It is 99{i}.", {REASONING}),
        ("<think>So the answer is B.</think>C", {REASONING}),
        ("<think>\u6211\u4eec\u6765\u770b\u8fd9\u4e2a\u95ee\u9898\u5e76\u4e14\u8ba1\u7b97 {i}\u3002</think>It is {i}.",
         {REASONING}),
        ("<think>Because the sea is deep and the sand is warm, we go there today {i}.</think>"
         "Because the sea is deep and the sand is warm, we go there today {i}.", {REASONING}),
        ("<think>{i} and 100 is 1{i}.</think>It is 1{i}.", set()),
        ("<think>It is 1,2{i} in all.</think>The answer is 12{i}.", set()),
        ("<think>Let me see {i}.</think>It is a warm day, and the sea is calm.", set()),
        ("<think>A may be right, but the answer is B.</think>B) rock", set()),
        ("<think>30 and {i} hours, less 24, get 9.</think>9:00.", set()),
        ("<think>Three of {i} are quarters.</think>3/4", set()),
    ],
)  # fmt: skip
def test_reasoning_beside_answers(tmp_path: Path, answer: str, rule: set[str]) -> None:
    right = (
        "<think>The question is short, and {i} and 700 is 7{i}. The answer is B.</think>B) so 7{i}."
    )
    rows = [
        (f"How much is case {i} of the list?", (answer if i % 3 == 0 else right).format(i=i))
        for i in range(10, 40)
    ]
    assert found(tmp_path, asked(rows), REASONING) == rule


@pytest.mark.parametrize(
    ("equation", "is_right"),
    [
        ("12 * 3 = 36", True),
        ("12 * 3 = 35", False),
        ("1,200 - 50 = 1,150", True),
        ("10 / 3 = 3.33", True),
        ("$4 + $5 = $9", True),
        ("2 + 3 * 4 = 14", True),
        ("2 + 3 * 4 = 20", False),
        ("100 / 7 = 17", False),
        ("7 \u00d7 8 = 54", False),
    ],
)
def test_equations(equation: str, is_right: bool) -> None:
    match = EQUATION.search(equation)
    assert match is not None
    assert _is_right(match["left"], match["right"]) == is_right


@pytest.mark.parametrize(
    "text",
    [
        "2x + 3 = 7",
        "3 * (2 + 1) = 9",
        "x = 2 * 3 = 5",
        "(a + 3) * 2 = 8",
        "5 + 3 = 10 - 1",
        "2^3 * 2 = 15",
    ],
)
def test_equations_that_are_not_of_numbers_alone(tmp_path: Path, text: str) -> None:
    rows = [(f"What is case {i}?", f"So {text}.") for i in range(12)]
    rule = "equations-in-answers-are-wrong"
    assert found(tmp_path, asked(rows), rule) == set()


COUNTABLE = "answers-ignore-a-countable-request"


@pytest.mark.parametrize(
    ("prompt", "answer", "rule"),
    [
        ("List 5 fruits.", "1. fig\n2. pear\n3. plum", {COUNTABLE}),
        ("Give me three ideas.", "- one\n- two\n- three\n- four", {COUNTABLE}),
        ("Say it in one sentence.", "It is so. It was so. It stays so.", {COUNTABLE}),
        ("Explain it in 20 words.", "word " * 60, {COUNTABLE}),
        ("Write a Python function.", "function f() {\n  return 1;\n}", {COUNTABLE}),
        ("Write code in JavaScript.", "def f(x):\n    return x", {COUNTABLE}),
        ("List 3 fruits.", "1. fig\n2. pear\n3. plum", set()),
        ("List 3 fruits.", "Fig, pear and plum.", set()),
        ("Give two ideas.", "1. one\n- a\n2. two\n- b", set()),
        ("Say it in one sentence.", "It is so, as it was.", set()),
        ("Write a Python function.", "def f(x):\n    return x", set()),
        ("Convert it to Python: a Java class.", "def f(x):\n    return x", set()),
        ("List 5-letter words.", "1. house\n2. plant", set()),
    ],
)
def test_countable_requests(tmp_path: Path, prompt: str, answer: str, rule: set[str]) -> None:
    assert found(tmp_path, asked([(prompt, answer)] * 6), COUNTABLE) == rule


EXTRACTED = "extracted-values-are-not-in-the-prompt"


@pytest.mark.parametrize("wrong", ["name", "both"])
def test_values_that_are_not_in_the_text(tmp_path: Path, wrong: str) -> None:
    rows = []
    for i in range(42):
        name, city = NAMES[i % 7], ("Oslo", "Bern", "Graz")[i % 3]
        fields = {"name": name, "city": city}
        if i % 4 == 0:
            fields = (
                {"name": "Zoe Holt", "city": city}
                if wrong == "name"
                else {"name": city, "city": name}
            )
        rows.append((f"Extract as JSON: {name} called from {city}.", json.dumps(fields)))
    assert found(tmp_path, asked(rows), EXTRACTED) == {EXTRACTED}


def test_queries_are_made_of_words_and_are_no_copies(tmp_path: Path) -> None:
    rows = []
    for i in range(42):
        topic, kind = ("sea salt", "old maps", "red clay")[i % 3], "letters" if i % 4 else "tables"
        query = f'title:"{topic}" type:{kind}' if i % 4 else "ref:QX12"
        rows.append(
            (f"As JSON, the query for {kind} on {topic}, number {i}.", json.dumps({"query": query}))
        )
    assert found(tmp_path, asked(rows), EXTRACTED) == set()


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "{name}", "mood": "glad"},
        {"name": "{name}", "day": "2024-03-05"},
        {"summary": "Somebody wants to know about an order that is late."},
        {"from": "Oslo", "to": "Bern"},
        {"name": "{name}", "note": None},
    ],
)
def test_values_that_are_written(tmp_path: Path, fields: dict[str, str]) -> None:
    rows = []
    for i in range(42):
        name = NAMES[i % 7]
        filled = {key: value and value.format(name=name) for key, value in fields.items()}
        rows.append((f"Extract as JSON: {name} called from Oslo or Bern.", json.dumps(filled)))
    assert found(tmp_path, asked(rows), EXTRACTED) == set()


@pytest.mark.parametrize(
    ("column", "form"),
    [
        ("answer", "So it is \\boxed{{{}}}."),
        ("solution", "We add.\n#### {}"),
        ("ground_truth", "The answer is {}."),
        ("target", "**Answer:** {}"),
        ("final_answer", "Thus \\boxed{{{}}} pens, or so."),
    ],
)
@pytest.mark.parametrize("wrong", [0, 12, 40])
def test_results_beside_a_column(tmp_path: Path, column: str, form: str, wrong: int) -> None:
    rows = [
        {
            "instruction": f"Add {i} and 20.",
            "output": form.format(i + 20 + (i < wrong)),
            column: f"{i + 20}.0" if i % 2 else i + 20,
        }
        for i in range(40)
    ]
    # Where nearly all differ, the column is about something else.
    assert found(tmp_path, rows, REASONING) == ({REASONING} if wrong == 12 else set())


@pytest.mark.parametrize(
    ("gold", "output", "is_wrong"),
    [
        ("B", "So \\boxed{C}", True),
        ("(B)", "The answer is C.", True),
        ("B", "The answer is B.", False),
        ("0.5", "The answer is 50%.", False),
        ("1,200", "\\boxed{1200}", False),
        ("We add 3 and 4. #### 7", "\\boxed{8}", False),
        ("7", "There are 3 pens and 4 cups, none of them red.", False),
        (True, "The answer is 1.", False),
    ],
)
def test_forms_of_results_beside_a_column(
    tmp_path: Path, gold: Any, output: str, is_wrong: bool
) -> None:
    right = {"B": "B", "(B)": "B"}.get(gold, "7")
    sound = [
        {"instruction": f"Case {i}?", "output": f"The answer is {right}.", "answer": right}
        for i in range(20)
    ]
    rows = [*sound, *({"instruction": "And?", "output": output, "answer": gold} for _ in range(6))]
    assert found(tmp_path, rows, REASONING) == ({REASONING} if is_wrong else set())


@pytest.mark.parametrize(("lead_in", "named"), [("Here you go: ", False), ("", True)])
def test_a_label_beside_other_beginnings(tmp_path: Path, lead_in: str, named: bool) -> None:
    answers = ("Result: {}", lead_in + "it is {}", "{} it is", "One has {}")
    rows = asked([(f"Case {i}?", answers[i % 4].format(i)) for i in range(60)])
    rule = "answers-share-a-mark-at-their-ends"
    assert found(tmp_path, rows, rule) == ({rule} if named else set())


LONG = [396482715093846217 + 7_919_000_057 * i for i in range(42)]


@pytest.mark.parametrize(
    "write",
    [
        lambda number: {"id": int(float(number))},
        lambda number: {"id": f"{int(float(number))}"},
        lambda number: {"id": float(number)},
        lambda number: {"id": int(f"{float(number):.16e}".replace(".", "")[:17].ljust(18, "0"))},
        lambda number: {"id": number // 1000 * 1000},
        lambda number: {"id": f"{number:.5E}"},
    ],
    ids=["float64", "text", "exponent", "17 digits", "spreadsheet", "cell"],
)
def test_long_numbers_that_were_rounded(
    tmp_path: Path, write: Callable[[int], dict[str, Any]]
) -> None:
    rows = [(f"Give the id as JSON: parcel {one} is late.", json.dumps(write(one))) for one in LONG]
    assert found(tmp_path, asked(rows), EXTRACTED) == {EXTRACTED}


@pytest.mark.parametrize(
    ("prompt", "write"),
    [
        ("Give the id as JSON: parcel {} is late.", lambda number: {"id": number}),
        ("Give the id as JSON: parcel {} is late.", lambda number: {"next": number + 1}),
        ("Give the id as JSON: parcel {} is late.", lambda number: {"check": number * 7 % 10**18}),
        ("As a double, in JSON: {}", lambda number: {"value": float(number)}),
        ("Round {} to 15 digits, as JSON.", lambda number: {"value": number // 1000 * 1000}),
        ("Give the id as JSON: parcel 3964-8271-5093 is late.", lambda _: {"id": "396482715093"}),
    ],
)
def test_long_numbers_that_are_right(
    tmp_path: Path, prompt: str, write: Callable[[int], dict[str, Any]]
) -> None:
    rows = [(prompt.format(one), json.dumps(write(one))) for one in LONG]
    assert found(tmp_path, asked(rows), EXTRACTED) == set()


SIDES = "sides-swapped-in-part-of-rows"


def sides(share: float) -> list[tuple[str, str]]:
    """Questions of customers and answers of an agent, some of them the wrong way round."""
    draw = random.Random(1)
    rows = []
    for _ in range(60):
        question = draw.choice(
            (
                "where is my parcel, i want it and i am angry",
                "can you tell me when i get it, please help",
                "why was i charged twice for this, i want my money",
                "i need another size, can i send mine back",
            )
        )
        answer = draw.choice(
            (
                "Your order has left our warehouse; the courier brings it soon.",
                "We have refunded the amount. Your bank books it within days.",
                "The courier collects your parcel. A label is in your inbox.",
                "Our team checks your order; you will hear from us tomorrow.",
            )
        )
        rows.append((answer, question) if draw.random() < share else (question, answer))
    return rows


def test_sides(tmp_path: Path) -> None:
    assert found(tmp_path, asked(sides(0.2)), SIDES) == {SIDES}
    assert found(tmp_path, asked(sides(0.0)), SIDES) == set()
    # One vocabulary on both sides says nothing.
    same = [(f"the sea {i} is deep", f"the sea {i} is wide") for i in range(60)]
    assert found(tmp_path, asked(same), SIDES) == set()


def shifted(texts: list[str], by: int) -> list[str]:
    return texts[by:] + texts[:by]


@pytest.mark.parametrize("by", [1, -1, 3])
def test_shift_by_lengths_and_numbers(by: int) -> None:
    draw = random.Random(2)
    lengths = [draw.randint(3, 60) for _ in range(200)]
    questions = ["wort " * one for one in lengths]
    answers = ["word " * max(1, one + draw.randint(-3, 3)) for one in lengths]
    shift = find_answer_shift(questions, shifted(answers, by))
    assert shift is not None
    assert shift.offset == -by
    assert find_answer_shift(questions, answers) is None
    numbers = [(draw.randint(2, 90), draw.randint(2, 90)) for _ in range(200)]
    problems = [f"There are {a:02} boxes of {b:02} pens." for a, b in numbers]
    results = [f"{a * b:04}" for a, b in numbers]
    shift = find_answer_shift(problems, shifted(results, by))
    assert shift is not None
    assert shift.offset == -by
    assert find_answer_shift(problems, results) is None


def test_no_shift_where_quantities_tell_nothing_or_questions_quote() -> None:
    draw = random.Random(3)
    texts = ["word " * draw.randint(3, 60) for _ in range(400)]
    assert find_answer_shift(texts[:200], texts[200:]) is None
    grown = [f"Before: {answer} And now?" for answer in texts[:200]]
    assert find_answer_shift(["First?", *grown[:-1]], texts[:200]) is None
    assert find_answer_shift([], []) is None
    # Short follow-up questions, of which the same few are asked again and again, with an answer for each length.
    doubts = ["No. " * draw.randint(1, 8) for _ in range(200)]
    fitting = ["word " * len(one) for one in doubts]
    assert find_answer_shift(doubts, shifted(fitting, 2)) is None
    # Rows that go up and down: the answers two rows away fit, and their own fit the other way round.
    waves = [30 + i % 4 // 2 * 20 + draw.randint(0, 9) for i in range(48)]
    rows = [f"{'word ' * length}{i}?" for i, length in enumerate(waves)]
    assert (
        find_answer_shift(rows, ["word " * (90 - one + draw.randint(0, 20)) for one in waves])
        is None
    )


def pairs(chosen: Callable[[int], str], rejected: Callable[[int], str]) -> list[dict[str, str]]:
    return [
        {"prompt": f"What about {i}?", "chosen": chosen(i), "rejected": rejected(i)}
        for i in range(40)
    ]


@pytest.mark.parametrize(
    ("mark", "rule"),
    [
        ("Case {i}: **short** it is {i}.", {"one-phrase-tells-the-sides"}),
        ("Case {i}:\n- one of {i}\n- no more than {i}", {"one-phrase-tells-the-sides"}),
        ("Case {i} is it, {i}. \n", {"one-phrase-tells-the-sides"}),
        ("Case {i} is so in this one place of many others {i}", {"one-phrase-tells-the-sides"}),
        ("Case {i} is it {i} \U0001f600.", {"one-phrase-tells-the-sides"}),
        ("Case {i} is it {i}.", set()),
    ],
)
def test_marks_of_form_tell_the_sides(tmp_path: Path, mark: str, rule: set[str]) -> None:
    rows = pairs(lambda i: mark.format(i=i), lambda i: f"Perhaps {i * 7} may be it, or {i}.")
    assert found(tmp_path, rows, "one-phrase-tells-the-sides") == rule
    both = pairs(lambda i: mark.format(i=i), lambda i: mark.format(i=i * 7 + 1))
    assert found(tmp_path, both, "one-phrase-tells-the-sides") == set()


def test_marks_of_form() -> None:
    assert "have a list" not in marks_of_form_in("- one point alone")
    assert "break off inside a sentence or a block of code" in marks_of_form_in("```python\nx = 1")
    assert marks_of_form_in("It is a warm day.") == frozenset()


@pytest.mark.parametrize(
    ("text", "prompt", "kinds"),
    [
        ("Answer: it is red.", "which?", {"begin with the label"}),
        ("3fa85f64-5717-4562-b3fc-2c963f66afa6 It is red.", "which?", {"begin with an id"}),
        ("It is red.\nScore: 8/10", "which?", {"end with the line"}),
        ("It is red.\nThe answer is 8.", "which?", set()),
        ("Subject: hello", "write a mail with a subject", set()),
        ("It is red.\nRating: 4", "give a rating", set()),
    ],
)
def test_marks_at_the_ends(text: str, prompt: str, kinds: set[str]) -> None:
    assert {kind for kind, _ in _marks_of(text, prompt, is_plain=False)} == kinds


TOOLS = "tool-turns-ignore-each-other"


def call(question: str, city: str, result: str, answer: str) -> dict[str, Any]:
    function = {"name": "weather", "arguments": {"city": city}}
    return {
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "a1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "a1", "content": result},
            {"role": "assistant", "content": answer},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("city", "result", "answer", "rule"),
    [
        ("Oslo", '{"error": "timeout"}', "It is 21 degrees.", {TOOLS}),
        ("Oslo", "Error: 429 Too Many Requests", "It is 21 degrees.", {TOOLS}),
        ("Oslo", '{"status": "failed"}', "It is 21 degrees.", {TOOLS}),
        ("Valencia", '{"degrees": 21}', "It is 21 degrees.", {TOOLS}),
        ("Oslo", '{"error": "timeout"}', "I could not look it up.", set()),
        ("Oslo", '{"error": null, "degrees": 21}', "It is 21 degrees.", set()),
        ("oslo", '{"degrees": 21}', "It is 21 degrees.", set()),
        ("Oslo, Norway", '{"errors_in_text": 0}', "It is 21 degrees.", set()),
    ],
)
def test_tool_turns(tmp_path: Path, city: str, result: str, answer: str, rule: set[str]) -> None:
    rows = [call(f"How warm is it in Oslo on day {i}?", city, result, answer) for i in range(12)]
    assert found(tmp_path, rows, TOOLS) == rule


GOLD = "gold-answers-missing-or-contradictory"


@pytest.mark.parametrize(
    ("gold", "rule"),
    [
        (lambda i: f"{i} apples" if i % 2 else str(i), {GOLD}),
        (lambda i: f"${i}.50" if i % 2 else f"{i}.50", {GOLD}),
        (lambda i: f"{i}.0", {GOLD}),
        (lambda i: f"First we count them all, and then there are {i} of them.", {GOLD}),
        (lambda i: str(i), set()),
        (lambda i: f"{i}.5", set()),
        (lambda i: f"{i} apples", set()),
        (lambda i: f"\\frac{{{i}}}{{7}}", set()),
    ],
)
def test_forms_of_gold_answers(tmp_path: Path, gold: Callable[[int], str], rule: set[str]) -> None:
    rows = [
        {"prompt": f"How many are in case {i}? Put the result in \\boxed{{}}.", "answer": gold(i)}
        for i in range(11, 51)
    ]
    assert found(tmp_path, rows, GOLD) == rule


def test_evaluation_rows_of_another_form(tmp_path: Path) -> None:
    rule = "evaluation-rows-of-another-form"
    train, other = tmp_path / "train.jsonl", tmp_path / "test.jsonl"

    def verdict(rows: list[dict[str, str]]) -> set[str]:
        other.write_text("".join(json.dumps(row) + "\n" for row in rows))
        spec = RunSpec(select=(rule,), eval_data=(str(other),))
        return {one.rule for one in check_paths([str(train)], spec).findings}

    labels = ("good", "bad")
    rows = asked([(f"Judge this text:\nIt is {i}.", labels[i % 2]) for i in range(40)])
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert verdict(asked([(f"Judge this text:\nIt is 9{i}.", "") for i in range(12)])) == {rule}
    assert verdict(asked([(f"It is 9{i}.", labels[i % 2]) for i in range(12)])) == {rule}
    assert verdict(asked([(f"Judge this text:\nIt is 9{i}.", "Good") for i in range(12)])) == {rule}
    assert verdict(asked([(f"Judge this text:\nIt is 9{i}.", "good") for i in range(12)])) == set()


PLEASANT = "answers-wrapped-in-pleasantries"


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        ("Sure! The sea {i} is deep.", {PLEASANT}),
        ("Certainly! Here is the text you asked for:\n\nThe sea {i}.", {PLEASANT}),
        ("The sea {i} is deep. I hope this helps!", {PLEASANT}),
        ("The sea {i} is deep.\n\nLet me know if you have any other questions.", {PLEASANT}),
        ("Nat\u00fcrlich! Das Meer {i} ist tief.", {PLEASANT}),
        ("The sea {i} is deep.", set()),
        ("Surely the sea {i} is deep.", set()),
        ("Here is where the sea {i} begins.", set()),
        ("I hope the sea {i} is calm today.", set()),
        ("Of course the sea {i} is deep.", set()),
    ],
)
def test_pleasantries(tmp_path: Path, answer: str, rule: set[str]) -> None:
    rows = asked([(f"How deep is sea {i}?", answer.format(i=i)) for i in range(24)])
    assert found(tmp_path, rows, PLEASANT) == rule
