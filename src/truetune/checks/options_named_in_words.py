"""Reads which answers a prompt allows, where it lists them in words: `one of: billing, refund, other`."""

from __future__ import annotations

import re

MAX_OPTIONS, MAX_OPTION_WORDS, MAX_OPTION_CHARACTERS = 40, 4, 40
"""Of a list of labels: what is longer is a list of something else"""
LIST_AFTER_WORDS = re.compile(
    r"\b(?:one of(?: the following)?|exactly one|(?:choose|select|pick|answer) (?:one )?(?:from|between|with)|either|"
    r"(?:possible |allowed |valid )?(?:labels|classes|categories|options|answers|values|intents|sentiments)(?: are)?|"
    r"eine[rs]? von|parmi|una de)\b"
    r"[^:\n.,]{0,40}:\s*[\[({]?([^\n.;\])}]{3,600})",
    re.IGNORECASE,
)
"""`Answer with one of: a, b, c` and `Labels: [a, b]`"""
LIST_IN_BRACKETS = re.compile(
    r"\b(?:label|class|category|sentiment|one of|answer|options?|choose|choices)\b[^\n.:(\[]{0,40}"
    r"[(\[]([^\n()\[\]]{3,300})[)\]]",
    re.IGNORECASE,
)
"""`Label the text (positive/negative/neutral)`"""
TWO_WORDS = re.compile(
    r"\b(?:answer|respond|reply|say|output|return|write)(?: with)?(?: only| just| either| exactly)*"
    r" [\"'`*]*(\w{1,20})[\"'`*]* or [\"'`*]*(\w{1,20})[\"'`*]*(?=[\s.,:;!?]|\Z)",
    re.IGNORECASE,
)
"""`Answer with yes or no`"""
SEPARATORS = re.compile(r"\s*(?:,\s*(?:and |or |und |oder )|[,/|]|\bor\b|\boder\b)\s*")
NO_OPTION_TEXT = re.compile(r"[{}<>=]|\betc\b|\.\.\.")


def normal_label(text: str) -> str:
    """A label without case, quotes and marks around it, and with one kind of separator between its words."""
    bare = text.strip().strip("\"'`*.,;:!()[] ").casefold()
    return re.sub(r"[\s_-]+", " ", bare)


def options_named_in_words(prompt: str) -> tuple[str, ...]:
    """The labels that a prompt lists as possible answers; empty where it lists none.

    The last list counts: examples come before the question that is asked.
    """
    lists = [
        options
        for pattern in (LIST_AFTER_WORDS, LIST_IN_BRACKETS)
        for match in pattern.finditer(prompt)
        if (options := _split_into_options(match[1]))
    ]
    if lists:
        return lists[-1]
    words = TWO_WORDS.search(prompt)
    return (words[1], words[2]) if words is not None else ()


def _split_into_options(text: str) -> tuple[str, ...]:
    """The items of a list; empty where they are no labels."""
    items = [
        item.strip(" \"'`*") for item in SEPARATORS.split(text.strip()) if item.strip(" \"'`*")
    ]
    are_labels = all(
        len(item) <= MAX_OPTION_CHARACTERS
        and len(item.split()) <= MAX_OPTION_WORDS
        and not NO_OPTION_TEXT.search(item)
        for item in items
    )
    return tuple(items) if 2 <= len(items) <= MAX_OPTIONS and are_labels else ()
