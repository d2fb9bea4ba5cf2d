"""What users read is written in the field's words: tests/words.py has the list. codespell finds what is misspelled."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests import words

ROOT = Path(__file__).parents[1]
CODESPELL_ALLOWS = {
    "rouge": "a metric",
    "astroid": "a package",
    "OwnLoader": "a class of an example",
    "nd": "two dimensions",
    "eles": "Portuguese: the words by which languages are recognised",
    **dict.fromkeys(("cliente", "assistent", "te", "vie"), "words of other languages"),
    **dict.fromkeys(("ist", "tage", "unter", "sie", "ser", "paket", "oder"), "German examples"),
    **dict.fromkeys(("als", "alle", "vor", "unser", "ligh", "adresse"), "the same"),
}
"""Words that codespell takes for mistakes, and what they are"""
IGNORED = ",".join(CODESPELL_ALLOWS)
PATTERN_SIGNS = ("\\", "|")
"""Of messages that are regular expressions: stems, which codespell takes for cut words"""


def hits_of(text: str, kind: str = words.PAGES) -> list[str]:
    """The names of the words that a text uses."""
    texts = [words.Text("page.md", 1, kind, text)]
    return [hit.word.name for hit in words.find_words(texts)]


def test_no_word_of_the_list_is_added() -> None:
    left = words.read_left()
    hits: dict[tuple[str, str], list[str]] = {}
    for hit in words.find_words(words.read_texts()):
        hits.setdefault((hit.path, hit.word.name), []).append(str(hit))
    added = [line for key, lines in hits.items() if len(lines) > left[key] for line in lines]
    assert added == [], "\n".join(added)
    gone = {key: count for key, count in left.items() if len(hits.get(key, ())) < count}
    assert gone == {}, "fewer than tests/words_left.txt says: run python -m tests.words"


def test_each_exception_is_used() -> None:
    for path, name in words.RIGHT:
        word = next(word for word in words.WORDS if word.name == name)
        texts = words.read_strings("x.py", (ROOT / path).read_text(encoding="utf-8"))
        assert word in [hit.word for hit in words.find_words(texts)], (path, name)
    for page in words.NOT_CHECKED:
        assert (ROOT / page).exists(), page


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("The run goes\non from a checkpoint", "go on"),
        ("Nothing was at hand.", "at hand"),
        ("each look is a line", "look (noun)"),
        ("look whether the column is right", "look whether"),
        ("the first rung", "rung"),
        ("P(stop) behind the reference", "behind"),
        ("what stands in the file", "stand"),
        ("the text that stood before it", "stand"),
        ("a token behind 256 others", "behind"),
        ("how it is told", "told"),
        ("documents are told apart by ids", "told"),
        ("a full disk is said", "is said"),
        ("outputs is there already", "is there already"),
    ],
)
def test_a_word_of_the_list_is_found(text: str, name: str) -> None:
    assert name in hits_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "rules look at the tokens",
        "answers that look like words",
        "0 stands for the rate of the settings, and reference-stands-in-the-prompt is a rule",
        "a server behind a load balancer",
        "it runs on the GPU that it went on the list with",
        "a mandatory handle",
        "the stop token follows the answer",
    ],
)
def test_ordinary_uses_are_not_found(text: str) -> None:
    assert hits_of(text) == []


def test_names_without_a_space_are_not_checked() -> None:
    source = '"""A rung."""\nKEY = "rung"\nTEXT = "the rung"\n'
    found = [(text.line, text.kind) for text in words.read_strings("x.py", source)]
    assert found == [(1, words.DOCSTRINGS), (3, words.MESSAGES)]


@pytest.mark.skipif(
    importlib.util.find_spec("codespell_lib") is None, reason="codespell is not installed"
)
def test_codespell_finds_no_misspelled_word() -> None:
    texts = [
        text
        for text in words.read_texts()
        if text.kind != words.MESSAGES or not any(sign in text.text for sign in PATTERN_SIGNS)
    ]
    done = subprocess.run(
        [sys.executable, "-m", "codespell_lib", "--ignore-words-list", IGNORED, "-"],
        input="\n".join(text.text for text in texts),
        capture_output=True,
        text=True,
        check=False,
    )
    # Each mistake is printed as its line and the better word.
    assert done.stdout == ""
    assert done.returncode == 0, done.stderr
