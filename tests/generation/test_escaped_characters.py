"""Escapes instead of characters, and where they are at home."""

from __future__ import annotations

import pytest

from tests.generation.test_score_answer import scored
from truetune.generation.find_literal_escapes import find_unwanted_escapes


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Line one\\nLine two\\nLine three", "\\n"),
        ("Sure:\\n\\nWhy?", "\\n"),
        ("Hello,\\r\\nBye\\r\\nTom", "\\r\\n"),
        ("你好\\n世界\\n再见", "\\n"),
        ("Tom &amp; Jerry &amp; Spike", "&amp;"),
        ("It&#39;s Bob&#39;s", "&#39;"),
        ("na\\u00efve caf\\u00ef", "\\u00ef"),
        ("Best%20regards%20to%20you", "%20"),
        ("Sch=C3=B6ne W=C3=B6rter", "=C3=B6"),
    ],
)
def test_escapes(text: str, first: str) -> None:
    assert find_unwanted_escapes(text)[0] == first


@pytest.mark.parametrize(
    "text",
    [
        "Line one\nLine two",
        "The nabla \\nabla, \\neq and \\nu are symbols.",
        'Use print("a\\nb\\nc") to print.',
        "Open C:\\New\\Notes and C:\\New\\Names",
        "<p>Tom &amp; Jerry &lt;b&gt;</p>",
        "In HTML write &amp; and &lt; to show them.",
        "Use \\n for newlines and \\n\\n for paragraphs, both are newline characters.",
        '{"text": "a\\n\\nb\\n\\nc"}',
        "def f(x):\n    return '\\n'.join(x) + \"\\n\\n\"",
        "```\necho -e 'a\\nb\\n\\n'\n```",
        "Take 50% 20 minutes and 30%20 more",
        "R&D; Q&A; AT&T;",
        "See https://a.b/c%20d%20e%20f",
    ],
)
def test_no_escapes(text: str) -> None:
    assert find_unwanted_escapes(text) == ()


def test_a_question_about_escapes_is_answered_with_some() -> None:
    text = "Line one\\nLine two\\nLine three"
    assert find_unwanted_escapes(text, "Write it with the newline character escaped.") == ()
    assert scored(text, text).escapes
    assert not scored(text, "", "What is \\n? A backslash?").escapes
