"""Damage that a script does to the answers of a published set is named; the set itself, and others, have none."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checks.pages.data import DEMO
from tests.parts import data
from truetune.checks.check_data import check
from truetune.checks.rows.evidence.damage_of_texts import (
    CODE_DAMAGE_KINDS,
    DAMAGE_KINDS,
    find_damage,
)
from truetune.settings.run_spec import RunSpec

ALPACA = "llamafactory/alpaca_en_demo.json"
PUBLISHED = (
    ALPACA,
    "llamafactory/alpaca_zh_demo.json",
    "llamafactory/glaive_toolcall_en_demo.json",
    "llamafactory/identity.json",
    "llamafactory/dpo_en_demo.json",
)
SHARE = 0.4
"""Of the answers that are damaged"""


def join_sentences(text: str, draw: random.Random) -> str:
    return re.sub(r"\. (?=[A-Z])", ".", text)


def lose_line_ends(text: str, draw: random.Random) -> str:
    return " ".join(text.split())


def lose_digits(text: str, draw: random.Random) -> str:
    return re.sub(r"\d+", "", text)


def separate_marks(text: str, draw: random.Random) -> str:
    return re.sub(r"(?<=\w)([.,])(?=\s|\Z)", r" \1", text)


def lose_marks(text: str, draw: random.Random) -> str:
    return re.sub(r"[^\w\s]", "", text)


def lose_capitals(text: str, draw: random.Random) -> str:
    return text.lower()


def double_words(text: str, draw: random.Random) -> str:
    return re.sub(r"\b[a-z]+\b", lambda m: f"{m[0]} {m[0]}" if draw.random() < 0.1 else m[0], text)


def split_words(text: str, draw: random.Random) -> str:
    return re.sub(
        r"([a-z]{4})([a-z]{4,})",
        lambda m: f"{m[1]}-\n{m[2]}" if draw.random() < 0.15 else m[0],
        text,
    )


def split_words_in_a_line(text: str, draw: random.Random) -> str:
    return split_words(text, draw).replace("\n", " ")


def use_no_break_spaces(text: str, draw: random.Random) -> str:
    return text.replace(" ", "\u00a0")


def put_invisible_characters(text: str, draw: random.Random) -> str:
    return re.sub(r"(?<=[a-z]{3})(?=[a-z]{3})", "\u200b", text)


def exchange_letters(text: str, draw: random.Random) -> str:
    return text.replace("e", "\u0435")


def widen_letters(text: str, draw: random.Random) -> str:
    return "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in text)


def escape_marks(text: str, draw: random.Random) -> str:
    return re.sub(r"([.!-])", r"\\\1", text)


def double_quotes(text: str, draw: random.Random) -> str:
    return '"' + text.replace(". ", '. ""So it is."" ').replace("\n", " ") + '"'


def cut_first_letter(text: str, draw: random.Random) -> str:
    return text[1:]


def cut_last_word(text: str, draw: random.Random) -> str:
    return text.rsplit(" ", 1)[0]


def repeat(text: str, draw: random.Random) -> str:
    return f"{text}\n\n{text}"


def cite(text: str, draw: random.Random) -> str:
    return re.sub(r"\.(?= |\Z)", lambda m: f"[{draw.randint(1, 9)}].", text)


def number(text: str, draw: random.Random) -> str:
    return f"{draw.randint(40, 999)}. {text}"


def put_page_number(text: str, draw: random.Random) -> str:
    return f"{text}\n\nPage {draw.randint(1, 80)} of 80"


def put_button(text: str, draw: random.Random) -> str:
    return f"Copy code\n{text}"


def annotate(text: str, draw: random.Random) -> str:
    return re.sub(r"\.(?= |\Z)", ".[citation needed]", text)


def leave(text: str, draw: random.Random) -> str:
    return text


DAMAGES: tuple[tuple[Callable[[str, random.Random], str], str], ...] = (
    (join_sentences, "sentences without a space between"),
    (lose_line_ends, "lists without line breaks"),
    (lose_digits, "lists without their numbers"),
    (separate_marks, "spaces before punctuation"),
    (lose_marks, "no punctuation at all"),
    (lose_capitals, "no capitals at all"),
    (double_words, "words that occur twice in a row"),
    (split_words, "words that are split at line ends"),
    (split_words_in_a_line, "words that are split at line ends"),
    (use_no_break_spaces, "no-break spaces instead of spaces"),
    (put_invisible_characters, "invisible characters inside words"),
    (exchange_letters, "letters of two alphabets in one word"),
    (widen_letters, "full-width Latin letters"),
    (escape_marks, "punctuation with a backslash"),
    (double_quotes, "quotes that a table doubled"),
    (cut_first_letter, "beginnings inside a sentence"),
    (cut_last_word, "ends inside a sentence"),
    (repeat, "the same text twice"),
    (cite, "source numbers without sources"),
    (number, "list numbers in front of the rows"),
    (put_page_number, "lines of a page or an app"),
    (put_button, "lines of a page or an app"),
    (annotate, "annotations for a program"),
)


def messages(folder: Path, rows: list[dict[str, Any]]) -> list[str]:
    """What the rule says of these rows."""
    path = folder / "rows.jsonl"
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    spec = RunSpec(data=(str(path),), tokenizer=str(DEMO), select=("answers-are-damaged-texts",))
    report = check(spec)
    return [one.message for one in report.findings]


@pytest.mark.parametrize(("damage", "kind"), DAMAGES)
def test_damage_is_named(
    tmp_path: Path, damage: Callable[[str, random.Random], str], kind: str
) -> None:
    draw = random.Random(1)
    rows = json.loads(data(ALPACA).read_text(encoding="utf-8"))[:600]
    for row in rows:
        # Who joins lines joins those of all answers, and only those with lists show it.
        if draw.random() < SHARE or damage is lose_line_ends:
            row["output"] = damage(row["output"], draw)
    (message,) = messages(tmp_path, rows)
    assert kind in message.split(": ", 1)[1]


def test_each_kind_has_a_script_that_does_it() -> None:
    assert {kind for _, kind in DAMAGES} == {one.name for one in DAMAGE_KINDS}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sets_have_none(tmp_path: Path, name: str) -> None:
    assert messages(tmp_path, json.loads(data(name).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "Use Node.js or Vue.js, e.g. in U.S. offices. It works. See example.com. Then go on.",
        "He had had enough. I know that that is so. It is very, very late. Bye bye.",
        "The first point is 1. cost, the second 2. time, and the third 3. risk. All matter.",
        "C'est \u00e7a\u00a0! Vous venez\u00a0? Oui\u00a0: nous venons tous ce soir, avec les enfants.",
        "\u041c\u044b \u043f\u0438\u0448\u0435\u043c IT-\u0441\u0438\u0441\u0442\u0435\u043c\u0443 \u0438 3D.",
        "\u5168\u89d2\u306e\uff21\uff22\uff23\u3068\u534a\u89d2\u306eABC\u306f\u7570\u306a\u308b\u6587\u5b57\u3067\u3059\u3002\uff34\uff26\u3082\u540c\u3058\u3067\u3059\u3002",
        "Match `\\d+\\.\\d` and `\\-`. The pattern \\d+\\.\\d\\- needs both of these backslashes.",
        "Set x[1] and y[2], then read z[3]. The values are there. Each list has three.",
        "[1] Smith 2020. [2] Jones 2021.\nBoth agree[1][2]. The effect is small[1]. It lasts.",
        "Use two- or three-way valves. A pre- and post-test is done. Short- to long-term plans exist.",
        "The essay is clear. It lacks examples. The end is weak.\nScore: 7",
        "Open the mail first.\nReply\nSave\nThen close it.",
        "3. Mai 1990",
        "8325. And please be quick.",
        "2. Paris",
        "1969: The first people walk on the moon. They stay for a day.",
        "The rose is red. It has no thorn\nand bends toward the early morn\nthe wind is low. It can not see\n"
        "the one who sings beneath the tree",
        "\u0627\u0644\u0633\u0644 Google "
        + " ".join(f"\u0643{chr(0x628 + i)}\u0645\u0629" for i in range(35)),
        "1. Open the door.\n2. Go in.\n3. Close it again.",
        "iPhone sales rose in May. They fell in June. Nobody knows the reason for that, they say.",
        'She said "no" and left. He said "yes" and stayed. That was all, and it was enough.',
        "<<Bonjour>>, dit-elle. <<Il est 9 h.>> Puis elle part.",
        "The matrix is [[1, 2], [3, 4]], and its inverse is [[-2, 1], [1.5, -0.5]].",
        "My verdict is: [[B]]. Rating: [[5]].",
        "See [the manual](https://example.com), and [this note]. It says [sic] so.",
        "Write cout << a << b; then cin >> c. The value of rows[index] is 3. Set items[name] to it.",
        "Use the ternary a ? b : c. Dear [Your Name], I write to you. It is 5 < 7 and 8 > 6.",
        "\u3010\u6ce8\u610f\u3011\u8bf7\u5148\u5173\u95ed\u7535\u6e90\u3002\u3010\u6b65\u9aa4\u3011\u6253\u5f00\u76d6\u5b50\u3002",
        "def add(hand, other):\n    total = hand[0], other[1]\n    seen = first[0]\n    return total",
        "It grew by 5 % and 6 %, see \u00a7 12 and \u00a7\u00a7 14-16. Write to me@example.com.",
    ],
)
def test_sound_texts_have_none(text: str) -> None:
    assert find_damage(text) is None


def test_plain_texts_hold_their_own_task(tmp_path: Path) -> None:
    texts = [f"ships: name, year {i}\nQ: Which ship is from {i}?\nA: The {i}th." for i in range(40)]
    assert messages(tmp_path, [{"text": text} for text in texts]) == []
    answers = [{"instruction": f"Name ship {i}.", "output": text} for i, text in enumerate(texts)]
    (message,) = messages(tmp_path, answers)
    assert "another task after the answer (40)" in message


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        (
            "[1] The bridge is closed. [2] It opens in May.\nWhen can I cross?",
            "The bridge is closed[1]. It opens again in spring[2]. Until then take the ferry.",
        ),
        (
            "Continue the sentence: The sky is",
            "blue because of the air. Short waves are spread most. Long waves pass. So it looks blue.",
        ),
        (
            "Which one? 33) red 34) blue 35) green",
            "34) blue",
        ),
        (
            "Write it in lower case: The bus is late. It comes at nine.",
            "the bus is late. it comes at nine. so they wait for the next one in the rain.",
        ),
        (
            "Solve it with calculator annotations: 48/2",
            "She sold 48/2 = <<48/2=24>>24 clips in May.",
        ),
        (
            "Answer with [[links]] to our pages.",
            "Read [[Return of goods]] first.",
        ),
        ("Say it twice.", "It comes at nine in the morning, on each day of the week.\n" * 2),
    ],
)
def test_what_the_prompt_explains_is_no_damage(prompt: str, text: str) -> None:
    assert find_damage(text, "Say it.") is not None
    assert find_damage(text, prompt) is None


@pytest.mark.parametrize(
    "text",
    [
        "She sold 48/2 = <<48/2=24>>24 clips in May.",
        "The tower [[File:Tower.jpg|thumb]] is old.",
        "It was built by {{lang|fr|Eiffel}} in a year.",
        "It opens at nine.\u30104\u2020source\u3011",
        "It opens at nine. \ue200cite\ue202turn0search1\ue201",
        "It opens at nine :contentReference[oaicite:0]{index=0}.",
        "It opens at nine.[citation needed] It closes late.",
        "History[edit]\nThe town is old.",
        "Geschichte[Bearbeiten | Quelltext bearbeiten]\nDie Stadt ist alt.",
        "[PERSON_1] met __ORG__ in May.",
        "It is %%price%% now.",
        "The capital is {{c1::Paris}}.",
        "It opens at nine [^1^].",
        'It is old.<ref name="a">Book</ref>',
    ],
)
def test_annotations_of_each_kind(text: str) -> None:
    damage = find_damage(text, "Tell me about it.")
    assert damage is not None
    assert damage.kind.name == "annotations for a program"


def test_code_in_one_line() -> None:
    lines = "def total(values):\n    result = 0\n    for one in values:\n        result += one\n    return result"
    damage = find_damage(f"So: ```python {' '.join(lines.split())} ``` It adds the values.")
    assert damage is not None
    assert damage.kind is CODE_DAMAGE_KINDS[0]
    assert find_damage(f"So:\n\n```python\n{lines}\n```\n\nIt adds the values.") is None
    assert find_damage("Run ```pip install --upgrade transformers trl peft datasets```.") is None


@pytest.mark.parametrize(
    "piece",
    [
        "a ",
        "1. ",
        "- a ",
        '""a',
        "[1]",
        "a.",
        "A. b ",
        " .",
        "a-\n",
        "\\.",
        ".A",
        '("',
        "<<a",
        "[[a",
        "{{a",
        "@@a",
        ".[a",
        "Ab ",
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    """Each pattern reads a text once: ten times the text is not a hundred times the work."""
    text = piece * 20_000
    find_damage(text)


LOOPS = (
    "Bats see by sound. " + "and listen for the echoes, " * 20 + "and listen",
    "It rounds the number.\n\n"
    + "- x: see the notes above\n- y: rounds the number\n" * 9
    + "- x: see",
    "A hash of a key " + "hash " * 60,
    "Die Antwort ist einfach. " + "Das Ergebnis stimmt, wie gesagt. " * 12 + "Das Erg",
    "\u7b54\u6848\u662f\u8fd9\u6837\u3002" + "\u6211\u4eec\u518d\u770b\u4e00\u6b21\u3002" * 30,
)


@pytest.mark.parametrize("text", LOOPS)
@pytest.mark.parametrize("prompt", ["How do bats see?", "What is 3 times 4?", "How many times?"])
def test_a_loop_of_a_sampler_is_named(text: str, prompt: str) -> None:
    damage = find_damage(text, prompt)
    assert damage is not None
    assert damage.kind.name == "a loop of the same words"


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ('Write "I will not talk" 40 times.', "I will not talk.\n" * 40),
        ("Write the word drum 35 times, with spaces.", "drum " * 35),
        ("Schreib 30-mal, dass du nicht petzt.", "Ich soll nicht petzen.\n" * 30),
        ("A short song with a refrain, please.", "Row the boat,\nrow the boat home.\n" * 12),
        ("Repeat after me until I stop you: all is well", "all is well, " * 40),
        ("The table of 7?", "\n".join(f"{i} x 7 = {7 * i}" for i in range(1, 30))),
        ("Print zeros.", "```python\n" + "print(0)\n" * 30 + "```"),
    ],
)
def test_words_that_were_to_come_again_are_no_loop(prompt: str, text: str) -> None:
    assert find_damage(text, prompt) is None
