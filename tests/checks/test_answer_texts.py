"""Notes on single answers: found where they are broken, and silent on answers that only look so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune
from tests import parts
from truetune.demo import TOKENIZER

PLACEHOLDER = "placeholder-in-answer"
NULL_WORD = "answer-is-a-null-word"
ENCODING = "broken-encoding"
REFUSAL = "refusals-in-answers"
SPACE = "whitespace-around-answers"
WHO = "Who are you?"

FOUND = {
    PLACEHOLDER: [
        (WHO, "I am {{name}}, an assistant by {{ author }}."),
        ("你是谁？", "您好，我是 {{name}}，由 {{author}} 发明。"),
        (WHO, "I am {name}, at your service."),
        (WHO, "I am <NAME>, made by <AUTHOR>."),
        ("When do you open?", "We open at [INSERT TIME HERE]."),
        ("What does it cost?", "It costs %s per month, and %d in a year."),
        (WHO, "Hello ${user_name}, I am here to help."),
        ("How do I reach you?", "Write to [Your Company] or call."),
        ("Who wrote it?", "It was written by <INSERT AUTHOR> in May."),
        ("Where are you?", "In {{city}}. The address is {{street}}."),
    ],
    NULL_WORD: [
        (WHO, word)
        for word in (
            "nan",
            "NaN",
            "None",
            "null",
            "N/A",
            "<NA>",
            "undefined",
            "#N/A",
            "NaT",
            "none.",
        )
    ],
    ENCODING: [
        (WHO, "I donâ€™t know."),
        (WHO, "The cafÃ© is open."),
        (WHO, "GrÃ¼ÃŸe aus KÃ¶ln."),
        (WHO, "Itâ€œs a â€” dash."),
        (WHO, "Price: Â£ 5."),
        (WHO, "ÐŸÑ€Ð¸Ð²ÐµÑ‚"),
        (WHO, "ä½ å¥½"),
        (WHO, "工���和知识"),
        (WHO, "mother\ufffds villa"),
        (WHO, "a bell \x07 rings"),
    ],
    REFUSAL: [
        ("Say hello.", answer)
        for answer in (
            "I'm sorry, but I can't help with that.",
            "I’m sorry, but I cannot say that.",
            "I cannot assist with this request.",
            "As an AI language model, I have no opinion.",
            "Unfortunately, I am not able to do this.",
            "Lo siento, pero no puedo hacerlo.",
            "Je suis désolé, mais je ne peux pas le faire.",
            "Es tut mir leid, das kann ich leider nicht sagen.",
            "很抱歉，我无法回答。",
            "Sure. As an AI, I have no body.",
        )
    ],
    SPACE: [
        (WHO, text)
        for text in (
            " I am Ada.",
            "I am Ada.\n",
            "\n\nI am Ada.",
            "\tAda",
            "Ada  ",
            " Ada ",
            "\n Ada",
            "Ada\r\n",
            "\u00a0Ada",
            "Ada\n\n\n",
        )
    ],
}
SILENT = {
    PLACEHOLDER: [
        ("Write a Jinja template.", "Use {{ name }} in it."),
        ("How do I print a name in Python?", "Write `print(f'{name}')`."),
        (WHO, "Use this:\n```\n{{ name }}\n```\nThen run it."),
        ("What is the area?", "It is $\\frac{a}{b}$ and $x_{max}$."),
        ("Give me the derivative.", "\\[ f'(x) = \\sqrt{x} \\]"),
        ("Greet {{name}}.", "Hello {{name}}."),
        ("What is the set?", "The set {1, 2, 3} and {a, b}."),
        ("What is the answer?", '{"name": "Ada", "age": 3}'),
        ("How sure are you?", "I am 95% sure, 5%s is not."),
        ("Which tag is bold?", "<b>bold</b> and <STRONG>bold</STRONG>."),
        ("Cite it.", "See [1] and [the guide](https://example.org)."),
        ("What does [UNK] mean?", "An unknown word."),
        ("Show HTML.", "<div>{{ content }}</div>"),
        (WHO, "function f() {\n  return ${x};\n}"),
    ],
    NULL_WORD: [
        ("What does the function return?", "It returns None."),
        ("Is it there? Answer N/A if not.", "N/A"),
        ("Which of these: none, some, all?", "none"),
        ("What is the grandmother called in India?", "Nani"),
        ("Who came?", "Nobody."),
        ("What is 0 / 0?", "It is not a number."),
        ("How much?", "0"),
        ("Yes?", "No"),
        ("What is null?", "null"),
        ("In Python, what is the value of x = None?", "None"),
    ],
    ENCODING: [
        (WHO, "Das Café in Köln öffnet."),
        (WHO, "Â e Ã são letras; NÃO."),
        (WHO, "ÃO não é problema"),
        (WHO, "Привет"),
        (WHO, "你好，世界"),
        (WHO, "“Quoted” — with a dash…"),
        (WHO, "naïve façade, ångström"),
        (WHO, "Tiếng Việt có dấu"),
        (WHO, "emoji 👩‍👩‍👧 here"),
        (WHO, "tab\there\nand \x1b[1mbold\x1b[0m"),
        (WHO, "É à â ê î ô û"),
    ],
    REFUSAL: [
        ("Say hello.", answer)
        for answer in (
            "Hello.",
            "I'm sorry to hear that. Here is what you can do.",
            "You can't do that in Python 2.",
            "As an AI engineer, you build systems.",
            "Sorry for the delay: it is done.",
            "Unfortunately, the train was late.",
            "As a large company, they sell much.",
            "He said that he cannot come.",
            "No.",
            "I am an artist and I paint.",
        )
    ],
    SPACE: [
        (WHO, text)
        for text in (
            "I am Ada.",
            "I\nam",
            "a  b",
            "- a\n- b",
            "Ja.",
            "x",
            "1",
            "你好",
            "...",
            "Ada\tLee",
        )
    ],
}


def found(rule: str, folder: Path, question: str, answer: str) -> bool:
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    (folder / "row.jsonl").write_text(json.dumps({"messages": turns}))
    report = truetune.check(data=str(folder / "row.jsonl"), tokenizer=str(TOKENIZER), select=rule)
    assert report.findings or report.examined, report.not_judged
    return bool(report.findings)


@pytest.mark.parametrize("rule", FOUND)
def test_broken_answers_are_found(rule: str, tmp_path: Path) -> None:
    assert [one for one in FOUND[rule] if not found(rule, tmp_path, *one)] == []


@pytest.mark.parametrize("rule", SILENT)
def test_answers_that_only_look_so_are_left_alone(rule: str, tmp_path: Path) -> None:
    assert [one for one in SILENT[rule] if found(rule, tmp_path, *one)] == []


def test_the_placeholders_of_a_published_set() -> None:
    data = str(parts.data("llamafactory/identity.json"))
    (finding,) = truetune.check(data=data, tokenizer=str(TOKENIZER), select=PLACEHOLDER).findings
    assert (finding.severity, finding.count, finding.total) == ("warning", 85, 91)


@pytest.mark.parametrize(("last", "wanted"), [("user", True), ("tool", True), ("assistant", False)])
def test_rows_that_end_without_an_answer(last: str, wanted: bool, tmp_path: Path) -> None:
    turns = [{"role": role, "content": "Yes?"} for role in ("user", "assistant", last)]
    (tmp_path / "row.jsonl").write_text(json.dumps({"messages": turns}))
    report = truetune.check(
        data=str(tmp_path / "row.jsonl"), tokenizer=str(TOKENIZER), select="row-ends-without-answer"
    )
    assert bool(report.findings) is wanted
