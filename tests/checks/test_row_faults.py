"""Faults that whole sets of rows have: each is found in many forms, and real sets and near misses are silent."""

from __future__ import annotations

import base64
import json
import quopri
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import truetune
from tests import parts
from truetune.demo import DATA
from truetune.report.supervision_headline import supervision_verdict

ROWS = (
    "escape-sequences-as-text template-inside-template encoded-text prompt-field-tells-the-answer"
)
RULES = (
    *ROWS.split(),
    "answers-of-other-rows",
    "shared-text-is-learned",
    "kto-labels-misread-as-booleans",
)
SETS = (
    "alpaca_en_demo.json",
    "alpaca_zh_demo.json",
    "c4_demo.jsonl",
    "dpo_en_demo.json",
    "dpo_zh_demo.json",
    "glaive_toolcall_en_demo.json",
    "glaive_toolcall_zh_demo.json",
    "identity.json",
    "kto_en_demo.json",
    "reason_tool_use_demo_50.jsonl",
    "v1_dpo_demo.jsonl",
    "v1_sft_demo.jsonl",
)
Row = dict[str, Any]


def check(rows: list[Row], folder: Path, rule: str, family: str = "qwen2.5-instruct") -> Any:
    """What one rule says of rows."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return truetune.check(data=str(path), tokenizer=str(parts.folder(family)), select=rule)


def severities(rows: list[Row], folder: Path, rule: str) -> list[str]:
    """The severities of its findings."""
    return [finding.severity for finding in check(rows, folder, rule).findings]


@pytest.fixture(scope="module")
def real() -> list[Row]:
    """Questions and answers of a published set."""
    text = parts.data("llamafactory/alpaca_en_demo.json").read_text(encoding="utf-8")
    return [
        {"question": row["instruction"] + "\n" + row["input"], "answer": row["output"]}
        for row in json.loads(text)
        if row["output"].strip()
    ][:300]


@pytest.mark.parametrize("name", SETS)
def test_published_sets_are_silent(name: str) -> None:
    found = truetune.check(
        data=str(parts.data(f"llamafactory/{name}")),
        tokenizer=str(parts.folder("qwen2.5-instruct")),
        select=list(RULES),
    ).findings
    assert [finding for finding in found if finding.severity != "info"] == []


def test_the_demo_is_silent() -> None:
    report = truetune.check(
        data=str(DATA), tokenizer=str(parts.folder("qwen3")), select=list(RULES)
    )
    assert report.findings == ()


ESCAPED: dict[str, Callable[[str], str]] = {
    "newlines": lambda text: text.replace("\n", "\\n"),
    "of windows": lambda text: text.replace("\n", "\\r\\n"),
    "json": json.dumps,
    "html": lambda text: text.replace("'", "&#39;").replace('"', "&quot;"),
    "breaks": lambda text: text.replace("\n", "<br>"),
    "spreadsheet": lambda text: text.replace("\n", "_x000D_"),
    "bytes": lambda text: text.replace("\n", "<0x0A>"),
}


@pytest.mark.parametrize("form", ESCAPED)
def test_escapes_in_answers(form: str, real: list[Row], tmp_path: Path) -> None:
    rows = [{**row, "answer": ESCAPED[form](row["answer"])} for row in real]
    assert severities(rows, tmp_path, "escape-sequences-as-text") == ["warning"]


@pytest.mark.parametrize(
    "answer",
    [
        "Use print('a\\nb') to write two lines.",
        "```python\nprint('a\\n\\n')\n```",
        '{"text": "First.\\n\\nSecond."}',
        "The gradient $\\nabla f$ is not \\neq 0 here.",
        "It stands in C:\\new\\table\\names.txt on the disk.",
        "The entity (&amp;) stands for an ampersand.",
    ],
)
def test_escapes_that_are_meant(answer: str, tmp_path: Path) -> None:
    rows = [{"question": f"Question {i}?", "answer": answer} for i in range(20)]
    assert severities(rows, tmp_path, "escape-sequences-as-text") == []


@pytest.mark.parametrize(
    "answer",
    [
        '{"name": "J\\u00fcrgen M\\u00fcller", "zip": "50667"}',
        '```json\n{"name": "J\\u00fcrgen"}\n```',
        '["J\\u00fcrgen"]',
        'Here it is: {"first": "J\\u00fcrgen"}',
        '<tool_call>\n{"name": "save", "arguments": {"who": "J\\u00fcrgen"}}\n</tool_call>',
        '{"city": "K\\u00f6ln"}',
    ],
)
def test_letters_escaped_in_json(answer: str, tmp_path: Path) -> None:
    rows = [
        {"question": f"As JSON: J\u00fcrgen M\u00fcller ({i})", "answer": answer} for i in range(20)
    ]
    assert severities(rows, tmp_path, "escape-sequences-as-text") == ["warning"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("As JSON: J\u00fcrgen", '{"name": "J\u00fcrgen"}'),
        ("As ASCII-only JSON: J\u00fcrgen", '{"name": "J\\u00fcrgen"}'),
        ("As JSON: Jurgen", '{"name": "J\\u00fcrgen"}'),
        ("As JSON: J\u00fcrgen", '{"name": "J\u00fcrgen", "mark": "\\u200b"}'),
        ("Which pattern matches \u00fc?", "```python\nre.compile('[\\u00e0-\\u00fc]')\n```"),
    ],
)
def test_escapes_in_json_that_are_meant(question: str, answer: str, tmp_path: Path) -> None:
    rows = [{"question": f"{question} ({i})", "answer": answer} for i in range(20)]
    assert severities(rows, tmp_path, "escape-sequences-as-text") == []


def test_markup_of_an_editor(real: list[Row], tmp_path: Path) -> None:
    """A warning where an export left its traces, a note where the tags may be what is wanted."""
    export = '<p class="MsoNormal">{}&nbsp;</p><br />'
    exported = [{**row, "answer": export.format(row["answer"])} for row in real]
    assert severities(exported, tmp_path, "escape-sequences-as-text") == ["warning"]
    bare = [{**row, "answer": f"<p>{row['answer']}</p>"} for row in real]
    assert severities(bare, tmp_path, "escape-sequences-as-text") == ["info"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Write the heading as HTML.", '<h1 class="title">Opening hours</h1>'),
        ("Which <span> is it?", '<span class="price">12</span>'),
        ("Is it open?", '<answer id="1"><p class="x">It is.</p></answer>'),
        ("Is it open?", "**Yes**, until five.<br>On <b>Sunday</b> it is shut."),
        ("Is it open?", '```html\n<p class="a">Yes</p>\n```'),
        ("How do I log in?", '<html><body><p class="x">Click here</p><form></form></body></html>'),
    ],
)
def test_markup_that_is_meant(question: str, answer: str, tmp_path: Path) -> None:
    rows = [{"question": f"{question} ({i})", "answer": answer} for i in range(20)]
    assert severities(rows, tmp_path, "escape-sequences-as-text") == []


FRAMES = {
    "llama 2": ("<s>[INST] {} [/INST]", "{} </s>"),
    "llama 3": ("<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>", "{}<|eot_id|>"),
    "gemma": ("<start_of_turn>user\n{}<end_of_turn>", "{}<end_of_turn>"),
    "zephyr": ("<|user|>\n{}</s>", "{}</s>"),
    "deepseek": ("<｜User｜>{}<｜Assistant｜>", "{}<｜end▁of▁sentence｜>"),
    "alpaca": ("### Instruction:\n{}\n\n### Response:", "{}"),
    "vicuna": ("USER: {} ASSISTANT:", "{}"),
    "anthropic": ("Human: {}\n\nAssistant:", "{}"),
}


@pytest.mark.parametrize("family", FRAMES)
def test_templates_in_contents(family: str, real: list[Row], tmp_path: Path) -> None:
    asked, answered = FRAMES[family]
    rows = [
        {"question": asked.format(row["question"]), "answer": answered.format(row["answer"])}
        for row in real
    ]
    assert severities(rows, tmp_path, "template-inside-template") == ["error"]


TURN_BEGINNINGS = {
    "chatml": "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>assistant\n",
    "llama3": "<|start_header_id|>user<|end_header_id|>\n\n",
    "zephyr": "<|system|>\n</s>\n<|assistant|>\n",
    "mistral": "[INST]  [/INST]",
    "gemma": "<start_of_turn>user\n<end_of_turn>\n<start_of_turn>model\n",
}


@pytest.mark.parametrize("beginning", TURN_BEGINNINGS.values(), ids=TURN_BEGINNINGS)
def test_plain_text_answers_begin_with_turns_that_no_answer_holds(
    real: list[Row], tmp_path: Path, beginning: str
) -> None:
    # Rendered prompts hold these marks rightly: only the answers' own are counted.
    sound = [
        {"prompt": beginning + row["question"], "completion": row["answer"] + "<|im_end|>"}
        for row in real
    ]
    assert severities(sound, tmp_path, "template-inside-template") == []
    rendered_alone = [
        {"prompt": row["question"], "completion": beginning + row["answer"]} for row in real
    ]
    assert severities(rendered_alone, tmp_path, "template-inside-template") == ["error"]
    pairs = [
        {"prompt": row["question"], "chosen": row["answer"], "rejected": beginning + row["answer"]}
        for row in real
    ]
    assert severities(pairs, tmp_path, "template-inside-template") == ["error"]


def test_turns_of_tool_results_may_stand_in_plain_text_answers(
    real: list[Row], tmp_path: Path
) -> None:
    result = "<|im_end|>\n<|im_start|>user\n<tool_response>\n7\n</tool_response><|im_end|>\n"
    rows = [
        {"prompt": row["question"], "completion": f"I look.{result}{row['answer']}"} for row in real
    ]
    assert severities(rows, tmp_path, "template-inside-template") == []


def test_a_few_rows_may_talk_of_templates(real: list[Row], tmp_path: Path) -> None:
    talk = [
        {
            "question": "How does Llama 2 end a prompt?",
            "answer": "With [/INST], as a mark in text.",
        },
        {"question": "What is `<start_of_turn>`?", "answer": "`<start_of_turn>` opens a turn."},
    ]
    assert severities([*real, *talk], tmp_path, "template-inside-template") == []


ENCODED: dict[str, Callable[[str], str]] = {
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "mail": lambda text: base64.encodebytes(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "percent": quote,
    "quoted-printable": lambda text: quopri.encodestring(text.encode(), quotetabs=True).decode(),
    "bytes": lambda text: repr(text.encode()),
    "list": lambda text: repr([text]),
    "object": lambda text: repr({"text": [text], "answer_start": [7]}),
}


@pytest.mark.parametrize("form", ENCODED)
def test_encoded_answers(form: str, real: list[Row], tmp_path: Path) -> None:
    rows = [
        {**row, "answer": ENCODED[form](row["answer"])} for row in real if len(row["answer"]) > 80
    ]
    assert "info" not in severities(rows, tmp_path, "encoded-text")
    assert severities(rows, tmp_path, "encoded-text")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Encode this text as base64: I am here at home.", "SSBhbSBoZXJlIGF0IGhvbWUgYW5kIHdhaXQu"),
        ("What is the commit?", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"),
        ("Give me a list of fruits in Python.", "['apple', 'pear', 'plum']"),
        ("Which long word is that?", "Donaudampfschifffahrtsgesellschaftskapitaen"),
        ("Where is it?", "https://example.com/a%20b%20c%20d?q=%C3%A9"),
        ("Which digits?", "3.14159265358979323846264338327950288419716939937510"),
    ],
)
def test_answers_that_only_look_encoded(question: str, answer: str, tmp_path: Path) -> None:
    rows = [{"question": question, "answer": answer} for _ in range(20)]
    assert severities(rows, tmp_path, "encoded-text") == []


CODES = {"billing": "Q7", "shipping": "Q9", "account": "Z1", "technical": "K4"}
LEAKS = {
    "line": "Ticket {i}\nGroup: {code}\n\n{text}",
    "part of a line": "Ticket {i}\nRouting: eu-{label}-{digit}\n\n{text}",
    "json": '{{"id": {i}, "group": "{code}", "text": "{text}"}}',
    "pairs": "id={i} queue={label}_eu lang=en\n{text}",
    "tag": "[{label}] {text}",
    "hashtag": "{text} #{label}",
    "element": "<ticket><dept>{code}</dept><body>{text}</body></ticket>",
    "address": "To: {label}-support@example.com\n\n{text}",
    "end": "{text}\n\nForwarded to {label}",
}
NO_LEAKS = {
    "candidates": "Choose one of billing, shipping, account, technical.\nText: {text}",
    "another field": "Channel: {channel}\n\n{text}",
    "the field is the question": "Code: {code}",
    "a field that is often wrong": "Group: {noisy}\n\n{text}",
    "shuffled options": "Text: {text}\nOptions: {options}",
}


def _tickets(form: str) -> list[Row]:
    rng = random.Random(5)
    words = [
        "printer",
        "invoice",
        "late",
        "parcel",
        "refund",
        "login",
        "mail",
        "error",
        "blue",
        "slow",
        "cable",
        "wrong",
        "update",
    ]
    rows = []
    for i in range(200):
        label = rng.choice(list(CODES))
        noisy = label if rng.random() < 0.85 else rng.choice(list(CODES))
        filled = form.format(
            i=i,
            label=label,
            code=CODES[label],
            noisy=CODES[noisy],
            digit=rng.randint(1, 3),
            channel=rng.choice(("mail", "web")),
            options=", ".join(rng.sample(list(CODES), 4)),
            text=" ".join(rng.choices(words, k=12)),
        )
        rows.append({"question": filled, "answer": label})
    return rows


@pytest.mark.parametrize("form", LEAKS)
def test_labels_in_the_prompt(form: str, tmp_path: Path) -> None:
    rows = _tickets(LEAKS[form])
    assert severities(rows, tmp_path, "prompt-field-tells-the-answer") == ["warning"]


@pytest.mark.parametrize("form", NO_LEAKS)
def test_prompts_without_the_label(form: str, tmp_path: Path) -> None:
    assert severities(_tickets(NO_LEAKS[form]), tmp_path, "prompt-field-tells-the-answer") == []


@pytest.mark.parametrize("offset", [1, -1, 3])
@pytest.mark.parametrize("start", [0, 150])
def test_answers_some_rows_off(offset: int, start: int, real: list[Row], tmp_path: Path) -> None:
    answers = [row["answer"] for row in real]
    moved = answers[start:][offset:] + answers[start:][:offset]
    rows = [
        {**row, "answer": answer} for row, answer in zip(real, answers[:start] + moved, strict=True)
    ]
    (finding,) = check(rows, tmp_path, "answers-of-other-rows").findings
    assert finding.severity == "error"
    rows_away = f"{abs(offset)} row"
    assert rows_away in finding.message
    assert ("further on" in finding.message) == (offset < 0)
    first = int(finding.message.split(":")[1].split()[0])
    assert abs(first - start) < 12


def test_answers_that_were_sorted_alone(real: list[Row], tmp_path: Path) -> None:
    answers = sorted(row["answer"] for row in real)
    rows = [{**row, "answer": answer} for row, answer in zip(real, answers, strict=True)]
    assert severities(rows, tmp_path, "answers-of-other-rows") == ["error"]


def test_turns_of_one_talk_in_several_rows(real: list[Row], tmp_path: Path) -> None:
    rows = [
        {"question": f"{before['answer']}\n\n{row['question']}", "answer": row["answer"]}
        for before, row in pairwise(real)
    ]
    assert severities(rows, tmp_path, "answers-of-other-rows") == []


def _canned(names: int, items: int, rows: int) -> list[Row]:
    """Tickets with replies from seven filled-in templates: part of the words coincide with those of other tickets."""
    rng = random.Random(names + items + rows)

    def invented(count: int) -> list[str]:
        return [
            "".join(rng.choice("bcdfgklmnprst") + rng.choice("aeiou") for _ in range(3))
            for _ in range(count)
        ]

    customers, things = invented(names), invented(items)
    replies = [" ".join(invented(15)) for _ in range(7)]
    filled = []
    for _ in range(rows):
        question = f"This is {rng.choice(customers)}. My {rng.choice(things)} is broken"
        answer = f"{rng.choice(replies)} within {rng.randint(5, 25)} days"
        if rng.random() < 0.5:
            answer += f", your {rng.choice(things)}"
        if rng.random() < 0.5:
            answer += f". Kind regards, {rng.choice(customers)}"
        filled.append(
            {"question": f"{question}, order {rng.randint(9999, 99999)}", "answer": answer}
        )
    return filled


@pytest.mark.parametrize(("names", "items", "rows"), [(10, 30, 60), (40, 12, 120), (100, 40, 300)])
@pytest.mark.parametrize("in_order", [False, True])
def test_canned_replies_belong_to_no_row(
    names: int, items: int, rows: int, in_order: bool, tmp_path: Path
) -> None:
    canned = _canned(names, items, rows)
    if in_order:  # an export by the macro that was used: neighbours have one reply
        canned.sort(key=lambda row: row["answer"])
    assert severities(canned, tmp_path, "answers-of-other-rows") == []


def test_refusals_belong_to_no_row(real: list[Row], tmp_path: Path) -> None:
    refusal = "I am sorry, I cannot help with this request."
    rows = [{**row, "answer": refusal} if n % 5 else row for n, row in enumerate(real)]
    assert severities(rows, tmp_path, "answers-of-other-rows") == []


def test_answers_that_went_astray_among_canned_ones(real: list[Row], tmp_path: Path) -> None:
    answers = [row["answer"] for row in real]
    random.Random(2).shuffle(answers)
    rows = [{**row, "answer": answer} for row, answer in zip(real, answers, strict=True)]
    rows += _canned(40, 40, 100)
    assert severities(rows, tmp_path, "answers-of-other-rows") == ["error"]


def test_a_shared_policy_is_learned(real: list[Row], tmp_path: Path) -> None:
    policy = "\n".join(row["answer"] for row in real[:6])
    texts = [{"text": f"{policy}\n\n{row['question']}\n\nDecision: allow"} for row in real[6:]]
    assert severities(texts, tmp_path, "shared-text-is-learned") == ["warning"]
    copies = check(texts, tmp_path, "duplicate-rows").findings
    assert [one.count for one in copies] in ([], [1]), "the published set holds one copy"
    chats = [
        {"question": f"{policy}\n\n{row['question']}", "answer": row["answer"]} for row in real
    ]
    assert severities(chats, tmp_path, "shared-text-is-learned") in ([], ["info"])


def test_rows_with_one_document_are_no_copies(real: list[Row], tmp_path: Path) -> None:
    document = " ".join(row["answer"] for row in real[:9])
    rows = [
        {"question": f"{document}\n{row['question']}", "answer": row["answer"]} for row in real[:8]
    ]
    assert check(rows, tmp_path, "duplicate-rows").findings == ()


@pytest.mark.parametrize(("varied", "severity"), [(True, "info"), (False, "warning")])
def test_letters_of_one_template_are_a_note(varied: bool, severity: str, tmp_path: Path) -> None:
    drawn = random.Random(11)
    words = ["".join(drawn.choices("abcdefghijklmnop", k=6)) for _ in range(900)]
    letters = [" ".join(drawn.choices(words, k=120)) for _ in range(20)]
    rows = []
    for n in range(200):
        letter = letters[n % 20]
        answer = f"{letter} Office {n if varied else 0}."
        turns = [
            {"role": "user", "content": f"{letter[:400]} For number {n}?"},
            {"role": "assistant", "content": answer},
        ]
        rows.append({"messages": turns})
    (finding,) = check(rows, tmp_path, "duplicate-rows").findings
    assert finding.severity == severity
    assert all("near-duplicate of" in case.text for case in finding.cases)


@pytest.mark.parametrize(
    ("good", "bad"), [("True", "False"), ("thumbs_up", "thumbs_down"), ("👍", "👎")]
)
def test_verdicts_in_words(good: str, bad: str, real: list[Row], tmp_path: Path) -> None:
    rows = [
        {"prompt": row["question"], "completion": row["answer"], "label": bad if i % 2 else good}
        for i, row in enumerate(real[:40])
    ]
    (finding,) = check(rows, tmp_path, "kto-labels-misread-as-booleans").findings
    assert (finding.count, finding.total) == (40, 40)


def test_classes_are_no_verdicts(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"Review {i}", "completion": "positive", "label": "positive"} for i in range(9)
    ]
    report = check(rows, tmp_path, "kto-labels-misread-as-booleans")
    assert report.formats == {"prompt-completion": 9}


@pytest.mark.parametrize(("limit", "severity"), [(65_536, "warning"), (1_024, "info")])
def test_one_long_row(limit: int, severity: str, real: list[Row], tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    log = {
        "question": "What is wrong?\n" + "ERROR 17:02 no route to host\n" * 3_000,
        "answer": "No.",
    }
    rows = [*real, log]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = truetune.check(
        data=str(path),
        tokenizer=str(parts.folder("qwen3")),
        select="one-row-decides-memory",
        max_length=limit,
    )
    (finding,) = report.findings
    assert finding.severity == severity
    assert [case.origin.line for case in finding.cases if case.origin] == [301]


def _behind_a_policy(real: list[Row], sentences: int) -> list[Row]:
    """Chats whose answers stand behind a long system prompt."""
    policy = "\n".join(row["answer"] for row in real[:sentences])
    return [
        {
            "messages": [
                {"role": "system", "content": policy},
                {"role": "user", "content": row["question"]},
                {"role": "assistant", "content": row["answer"]},
            ]
        }
        for row in real[sentences : sentences + 60]
    ]


def _of_limit(rows: list[Row], folder: Path, **settings: Any) -> Any:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    rules = [
        "rows-longer-than-default-max-length",
        "truncation-cuts-the-terminator",
        "shared-text-is-learned",
    ]
    tokenizer = str(parts.folder("qwen2.5-instruct"))
    return truetune.check(
        data=str(path), tokenizer=tokenizer, select=rules, trainer="trl", **settings
    )


@pytest.mark.parametrize("limit", [None, 1024])
def test_answers_behind_the_cut_are_one_error(
    limit: int | None, real: list[Row], tmp_path: Path
) -> None:
    rows = _behind_a_policy(real, 30)
    report = _of_limit(rows, tmp_path, max_length=limit, learn={"what": "all"})
    (found,) = report.findings
    assert found.severity == "error"
    assert f"{len(rows)} of {len(rows)}" in found.message
    assert "whole answer: it is after the cut at 1,024" in found.message
    headline = supervision_verdict(report).plain
    assert "cut at 1,024" in headline
    assert "no answer is left" in headline
    assert f"trains on {1024 * len(rows):,} of" in headline


@pytest.mark.parametrize("limit", [4096, None])
def test_shared_text_is_counted_before_the_cut_and_chats_are_told_of_their_setting(
    limit: int | None, real: list[Row], tmp_path: Path
) -> None:
    rows = _behind_a_policy(real, 4)
    report = _of_limit(rows, tmp_path, max_length=limit, learn={"what": "all"})
    texts = [one for one in report.findings if one.rule == "shared-text-is-learned"]
    assert len(texts) == 1
    assert "assistant_only_loss" in texts[0].remedy
    assert "instead of text" not in texts[0].remedy
