"""A language is told of prose that is long enough, and of nothing else."""

from __future__ import annotations

import pytest

from tests.parts import data
from truetune.generation.identify_language import (
    are_languages_clearly_different,
    count_letters_with_cjk_as_three,
    identify_language,
)

LANGUAGES = (
    "ar",
    "bg",
    "de",
    "el",
    "en",
    "es",
    "fr",
    "hi",
    "ru",
    "sw",
    "th",
    "tr",
    "ur",
    "vi",
    "zh",
)
"""Of the lines of the file, in turn"""

NO_PROSE = {
    "short": "Yes, of course.",
    "names": (
        "Giovanni Rossi, Hans Müller, Pierre Dupont, Juan García, Anna Kowalska, Sven Svensson,"
        " John Smith"
    ),
    "Python": (
        "def f(x):\n    return x + 1\n\nfor i in range(10):\n    print(f(i), end=' ')\nimport numpy"
        " as np"
    ),
    "a block of code": (
        "```\nselect the name and the age of all users who are older than ten years\n```"
    ),
    "SQL": (
        "SELECT name, age FROM users WHERE age > 10 AND city = 'Rom' ORDER BY name DESC LIMIT 10;"
    ),
    "JSON": (
        '{"name": "Peter", "age": 3, "city": "Berlin", "hobbies": ["reading", "swimming",'
        ' "coding"]}'
    ),
    "CSV": "id,name,price\n1,apple,3.5\n2,pear,4.2\n3,plum,1.1\n4,cherry,9.0\n5,lime,7.7",
    "numbers": "12 345 678 90 12 345 678 90 12 345 678 90 12 345 678 90",
    "a link": (
        "https://example.com/the-lighthouse-on-the-northern-cliff-and-its-keeper/in-the-evening"
    ),
    "nothing": "",
}
PROSE = {
    "de": "Die Katze sitzt auf dem Dach und schaut den Vögeln zu, die im Garten spielen.",
    "it": "Il gatto è seduto sul tetto e guarda gli uccelli che giocano nel giardino.",
    "ja": "猫は屋根の上に座って、庭で遊んでいる鳥を見ています。",
    "ko": "고양이가 지붕 위에 앉아 정원에서 노는 새들을 보고 있습니다.",
    "pl": "Kot siedzi na dachu i patrzy na ptaki, które bawią się w ogrodzie.",
}


@pytest.mark.parametrize("name", NO_PROSE)
def test_no_language(name: str) -> None:
    assert identify_language(NO_PROSE[name]) is None


@pytest.mark.parametrize("name", PROSE)
def test_language(name: str) -> None:
    assert identify_language(PROSE[name]) == name


def test_code_in_prose_is_left_out() -> None:
    text = (
        f"{PROSE['de']}\n```python\nfor name in names:\n    print(name)\n```\n| a | b |\n<|im_end|>"
    )
    assert identify_language(text) == "de"


def test_letters_of_all_scripts_count() -> None:
    assert count_letters_with_cjk_as_three("abc 12, d") == 4
    assert count_letters_with_cjk_as_three("灯塔") == 6
    assert count_letters_with_cjk_as_three("है") == 2


def test_switched() -> None:
    assert are_languages_clearly_different("de", "en") is True
    assert are_languages_clearly_different("de", "de") is False
    assert are_languages_clearly_different("no", "da") is False
    assert (
        are_languages_clearly_different(None, "de")
        is are_languages_clearly_different("de", None)
        is None
    )


def test_lines_of_fifteen_languages() -> None:
    lines = data("tinker-cookbook/multilingual.txt").read_text(encoding="utf-8").splitlines()
    told = [
        (LANGUAGES[i % 15], found)
        for i, line in enumerate(lines)
        if (found := identify_language(line))
    ]
    wrong = [pair for pair in told if pair[0] != pair[1]]
    assert len(told) > len(lines) / 2
    assert len(wrong) <= 0.002 * len(told), wrong
    claimed = [
        pair
        for pair in zip(told, told[15:], strict=False)
        if are_languages_clearly_different(pair[0][1], pair[1][1])
    ]
    assert all(one[0] != other[0] or one in wrong or other in wrong for one, other in claimed)
