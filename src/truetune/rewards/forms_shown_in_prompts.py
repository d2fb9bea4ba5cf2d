"""Forms of an answer that prompts show, with a placeholder for it, and objects with the keys that a function reads.

A prompt that says `Reply as JSON: {"result": NUMBER}`, `Answer: <number>` or `<label>...</label>` shows what is paid.
Forms are texts with one `{}`. The trade-off: a form that a prompt describes in words alone is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

MAX_FORMS = 12
"""Forms of all prompts; each costs calls"""
MAX_KEYS = 5
"""Keys of one object that are tried as the one with the answer, the last ones first"""
MAX_NAMED_KEYS = 8
"""Keys that a function names and that are tried"""
MAX_FORM_CHARACTERS = 80
"""Of a line that shows a form; longer ones are sentences"""
_WORDS = (
    "answer|number|result|label|letter|choice|option|value|integer|category|class|solution|output"
)
_NAMED = rf"(?:\w+[ _-])?(?:{_WORDS})(?:[ _-]\w+)?"
_PLACE = re.compile(
    rf"\.\.\.|…|_{{3,}}|<{_NAMED}>|\[{_NAMED}\]|\{{{_NAMED}\}}|\b(?:{_WORDS.upper()})\b",
)
"""What a prompt writes where the answer is to be: `...`, `<number>`, `[your answer]`, `LABEL`"""
_QUOTED_PLACE = re.compile(rf"{_PLACE.pattern}|\b[XYN]\b")
"""In quotes also a single letter, which is a variable in a sentence of mathematics"""
_QUOTED = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"|'([^'\n]+)'|“([^”\n]+)”")
_MARK = re.compile(r"[:=#\[\]<>\\*|]")
"""What a line has that shows a form, and a sentence hardly has"""
_END_OF_SENTENCE = re.compile(r"(?<![.…])[.,;]$")
_OBJECT = re.compile(r"\{(\s*[\"'][^{}]{3,600})\}")
_PAIR = re.compile(
    r"""["'](?P<key>[^"'\n]{1,40})["']\s*:\s*(?P<value>"[^"]*"|'[^']*'|\[[^\]]*\]|[^,\n]+)"""
)
_PLAIN_VALUE = re.compile(r"-?\d+(?:\.\d+)?|true|false|null")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_ -]{1,29}")
NO_KEYS = frozenset(("content", "role", "assistant", "user", "prompt", "prompts", "completions"))
"""Texts that functions name and that are keys of messages"""


def forms_shown_in_prompts(prompts: Iterable[str], thought: str) -> list[str]:
    """The forms that prompts show, each a text with one `{}`.

    Args:
        prompts: texts of prompts, system messages included.
        thought: what is put at other places of a form.
    """
    found: dict[str, None] = {}
    for prompt in dict.fromkeys(prompts):
        for form in (*_objects(prompt, thought), *_lines(prompt)):
            found.setdefault(form)
        if len(found) >= MAX_FORMS:
            break
    return list(found)[:MAX_FORMS]


def objects_with_named_keys(texts: Iterable[str], thought: str) -> Iterator[str]:
    """JSON objects with the keys that a function names, each a text with one `{}`: one key alone, then all of them."""
    keys = [text for text in dict.fromkeys(texts) if _KEY.fullmatch(text) and text not in NO_KEYS]
    keys = keys[:MAX_NAMED_KEYS]
    for key in keys:
        yield from _objects_of_pairs([(key, "")], thought)
    if len(keys) > 1:
        yield from _objects_of_pairs([(key, "") for key in keys], thought)


def _objects(prompt: str, thought: str) -> Iterator[str]:
    """The JSON objects of a prompt with the answer at one key, bare and as a text."""
    for match in _OBJECT.finditer(prompt):
        pairs = [(pair["key"], pair["value"].strip()) for pair in _PAIR.finditer(match[1])]
        for form in _objects_of_pairs(pairs, thought):
            yield form
            if "```" in prompt:
                yield f"```json\n{form}\n```"


def _objects_of_pairs(pairs: Sequence[tuple[str, str]], thought: str) -> Iterator[str]:
    """Objects with these keys, the answer at one of them: the last key first, since thoughts come before answers."""
    for place in reversed(range(max(0, len(pairs) - MAX_KEYS), len(pairs))):
        for answer in ("{}", '"{}"'):
            fields = (
                f'"{key}": {answer if number == place else _other_value(value, thought)}'
                for number, (key, value) in enumerate(pairs)
            )
            yield "{" + ", ".join(fields) + "}"


def _other_value(value: str, thought: str) -> str:
    """The value of a key that does not hold the answer: a number or truth value as it is shown, else a thought."""
    return value if _PLAIN_VALUE.fullmatch(value) else f'"{thought}"'


def _lines(prompt: str) -> Iterator[str]:
    """The lines, and the words and quoted parts of lines, that have a placeholder and a text beside it."""
    for line in _OBJECT.sub("", prompt).splitlines():
        for quoted in _QUOTED.finditer(line):
            yield from _filled(next(filter(None, quoted.groups())), _QUOTED_PLACE)
        tail = re.split(r"(?<=:)\s+", line.strip(), maxsplit=1)[-1]
        words = (_END_OF_SENTENCE.sub("", word) for word in line.split())
        for part in dict.fromkeys((line.strip(), tail, *words)):
            if _MARK.search(part):
                yield from _filled(part, _PLACE)


def _filled(part: str, place: re.Pattern[str]) -> Iterator[str]:
    """A part with `{}` at its last placeholder, where it has one and says more than that."""
    part = part.strip()
    places = list(place.finditer(part))
    if not places or len(part) > MAX_FORM_CHARACTERS:
        return
    before, after = part[: places[-1].start()], part[places[-1].end() :]
    if (before + after).strip(" .,:\"'`") and "{}" not in before and "{}" not in after:
        yield f"{before}{{}}{after}"
