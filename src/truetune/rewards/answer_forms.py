"""Forms in which models give an answer, and other spellings of one answer: what a reward function is tried on.

The forms are those of public sets, prompts and papers, and those whose tags the function itself names: a function that
searches `<SOLUTION>(.+?)</SOLUTION>` is tried on an answer in these tags. Forms that the prompts show with a
placeholder are tried as well. The trade-off: a form that is only described in the prompt, in words, is not found; the
user can give it (`--answer-form`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain, count

from truetune.generation.final_answers import ANSWER_FORMS, MAX_RESPELLED_DIGITS
from truetune.rewards.forms_shown_in_prompts import (
    forms_shown_in_prompts,
    objects_with_named_keys,
)
from truetune.rewards.respell_objects import spellings_of_object
from truetune.rewards.rows_for_rewards import RightAnswer

THOUGHT = "Let me work it out step by step."
"""What the forms think: no number, no letter of a choice, no word of an answer"""
OWN_FORM = "--answer-form"
MAX_TAG_FORMS = 8
"""Forms made of tags that the function names; each costs calls"""
_TAG = re.compile(r"<([A-Za-z][\w-]{0,30})>")
# `<start_working_out>` ... `<end_working_out>`, and `[ANSWER]` ... `[/ANSWER]`.
_CLOSING_TAG = re.compile(r"\s*<(?:/|end_)[\w-]+>")
_START_TAG = re.compile(r"<start_(?P<name>\w{1,30})>")
_BRACKET_TAG = re.compile(r"\\?\[(?P<name>[A-Z]{2,20})\\?\]")
_FENCE = re.compile(r"```(?P<language>\w*)")
THINKING_NAMES = (
    "think", "thinking", "reasoning", "reason", "scratchpad", "thought", "analysis",
    "start_working_out",
)  # fmt: skip
"""Tags that hold thoughts"""


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """A text with a place for the answer."""

    name: str
    """`\\boxed{X}`"""
    before: str
    after: str

    def fill(self, answer: str) -> str:
        """The form with an answer in it."""
        return f"{self.before}{answer}{self.after}"

    def fill_thoughts(self, thought: str, answer: str | None) -> str:
        """The form with an answer in its thoughts, where it thinks in it or in thoughts in front of it.

        Args:
            thought: the answer in the thoughts.
            answer: the one behind them; None where the completion ends with its thoughts.
        """
        head, has_thoughts, tail = self.before.partition(THOUGHT)
        if not has_thoughts:
            said = "" if answer is None else f"\n{self.fill(answer)}"
            return f"<think>\n{self.fill(thought)}\n</think>\n{said}"
        closing = _CLOSING_TAG.match(tail)
        end = closing.end() if closing else 0
        inner = f"{tail[end:].strip()}{thought}{self.after.strip()}"
        said = "" if answer is None else f"{tail[end:]}{answer}{self.after}"
        return f"{head}{THOUGHT} {inner}{tail[:end]}{said}"


def _form(text: str, name: str | None = None) -> AnswerForm:
    """A form of a text with one `{}`."""
    before, _, after = text.partition("{}")
    return AnswerForm(name or _as_name(text), before, after)


def _as_name(text: str) -> str:
    """A form's text as a name on one line: X for the answer, ... for the thought."""
    return " ".join(text.replace("{}", "X").replace(THOUGHT, "...").split("\n")).strip()


def _written_forms() -> Iterator[AnswerForm]:
    """The forms of public sets and papers."""
    for text in ANSWER_FORMS:
        # Those are texts for str.format: their doubled braces are single ones.
        yield _form(
            text.replace("{}", "\0").replace("{{", "{").replace("}}", "}").replace("\0", "{}")
        )
    for text in (
        "$\\boxed{{}}$",
        "The final answer is {}",
        "Final Answer: The final answer is ${}$. I hope it is correct.",
        "({})",
        "<answer>{}</answer>",
        "<answer>\n{}\n</answer>",
        f"<think>\n{THOUGHT}\n</think>\n{{}}",
        f"<think>{THOUGHT}</think><answer>{{}}</answer>",
        f"<think>{THOUGHT}</think>\n<answer>{{}}</answer>",
        f"<think>\n{THOUGHT}\n</think>\n<answer>\n{{}}\n</answer>",
        f"<think>\n{THOUGHT}\n</think>\n\n<answer>\n\\boxed{{{{}}}}\n</answer>",
        f"<think>\n{THOUGHT}\n</think>\n\n\\boxed{{{{}}}}",
        f"<reasoning>\n{THOUGHT}\n</reasoning>\n<answer>\n{{}}\n</answer>\n",
        # Where the prompt ends in `<think>`, and the function puts it in front again.
        f"{THOUGHT}\n</think>\n<answer>{{}}</answer>",
        '{"answer": "{}"}',
        '```json\n{"answer": "{}"}\n```',
        "```\n{}\n```",
        "```python\n{}\n```",
        "```python\nprint({})\n```",
        '```python\nprint("{}")\n```',
        "答案是{}",
        "La réponse est {}.",
        "Die Antwort ist {}.",
        "La respuesta es {}.",
    ):
        yield _form(text)


def answer_forms(
    texts: Sequence[str], own: Sequence[str] = (), prompts: Sequence[str] = ()
) -> list[AnswerForm]:
    """The forms that a function is tried on; no two have one name.

    Args:
        texts: strings that the function names.
        own: forms of the user's, each with one `{}`.
        prompts: texts of prompts, which may show a form.
    """
    # A user writes \n in a shell.
    of_user = [_form(text.replace("\\n", "\n")) for text in own]
    shown = [_form(text) for text in forms_shown_in_prompts(prompts, THOUGHT)]
    forms = [*of_user, *_written_forms(), *_forms_of_tags([*texts, *prompts]), *shown]
    return _named_apart(forms)


def forms_of_named_keys(texts: Sequence[str]) -> list[AnswerForm]:
    """JSON objects with the keys that a function names: for one that parses completions as JSON."""
    return _named_apart(_form(text) for text in objects_with_named_keys(texts, THOUGHT))


def _named_apart(forms: Iterable[AnswerForm]) -> list[AnswerForm]:
    """The different forms, each with a name of its own.

    Names leave out what differs in white space and thoughts. A second form of one name shows its line breaks, and is
    numbered where that does not tell them apart.
    """
    first_of_each: dict[tuple[str, str], AnswerForm] = {}
    for form in forms:
        first_of_each.setdefault((form.before, form.after), form)
    named: dict[str, AnswerForm] = {}
    for form in first_of_each.values():
        spelled = f"{form.before}X{form.after}".replace(THOUGHT, "...").replace("\n", "\\n")
        numbered = (f"{spelled} ({number})" for number in count(2))
        name = next(name for name in chain((form.name, spelled), numbered) if name not in named)
        named[name] = replace(form, name=name)
    return list(named.values())


def _forms_of_tags(texts: Sequence[str]) -> Iterator[AnswerForm]:
    """Forms in the tags that the function names: each alone, and behind a thought in another one of them."""
    pairs = _tag_pairs(texts)
    thinking = [pair for pair in pairs if _is_for_thoughts(pair[0])]
    answering = [pair for pair in pairs if pair not in thinking]
    if not thinking:
        thinking = answering[:1]
    for opening, closing in answering[:MAX_TAG_FORMS]:
        yield _form(f"{opening}{{}}{closing}")
        yield _form(f"{opening}\n{{}}\n{closing}")
    for begin, end in thinking[:2]:
        for opening, closing in answering[:MAX_TAG_FORMS]:
            if (begin, end) != (opening, closing):
                yield _form(f"{begin}{THOUGHT}{end}{opening}{{}}{closing}")
                yield _form(f"{begin}\n{THOUGHT}\n{end}\n{opening}\n{{}}\n{closing}\n")
    for text in texts:
        for fence in _FENCE.finditer(text):
            yield _form(f"```{fence['language']}\n{{}}\n```")


def _tag_pairs(texts: Iterable[str]) -> list[tuple[str, str]]:
    """(opening, closing) of the tags in some texts, in their order."""
    pairs: dict[tuple[str, str], None] = {}
    joined = "\n".join(texts)
    for tag in _TAG.finditer(joined):
        start = _START_TAG.fullmatch(tag[0])
        if start and f"<end_{start['name']}>" in joined:
            pairs.setdefault((tag[0], f"<end_{start['name']}>"))
        elif f"</{tag[1]}>" in joined:
            pairs.setdefault((tag[0], f"</{tag[1]}>"))
    for tag in _BRACKET_TAG.finditer(joined):
        if f"[/{tag['name']}" in joined.replace("\\", ""):
            pairs.setdefault((f"[{tag['name']}]", f"[/{tag['name']}]"))
    return list(pairs)


def _is_for_thoughts(opening: str) -> bool:
    """Is a tag one for thoughts, by its name?"""
    return opening.strip("<>[]").lower() in THINKING_NAMES


def other_spellings(answer: RightAnswer) -> Iterator[tuple[str, str]]:
    """(name, text): other spellings of a short answer, or of a JSON object, that are equal to it."""
    yield from spellings_of_object(answer.text)
    if not answer.is_short or answer.kind == "json" or answer.text.lstrip().startswith("{"):
        return
    text = answer.text
    yield " X  (white space)", f" {text} "
    yield "**X**", f"**{text}**"
    yield "$X$", f"${text}$"
    yield "\\text{X}", f"\\text{{{text}}}"
    if answer.kind == "number":
        yield from _number_spellings(text)
    elif answer.kind == "letter":
        yield "(X)", f"({text})"
        yield "X.", f"{text}."
        yield "x (lower case)", text.lower()
    elif answer.kind == "word":
        yield "X.", f"{text}."
        if text.upper() != text:
            yield "X IN CAPITALS", text.upper()
        if text.lower() != text:
            yield "x in lower case", text.lower()


def _number_spellings(text: str) -> Iterator[tuple[str, str]]:
    """Other spellings of a number."""
    bare = text.replace(",", "")
    if not re.fullmatch(r"-?\d+(\.\d+)?", bare) or len(bare) > MAX_RESPELLED_DIGITS:
        return
    number = Decimal(bare)
    if "." not in bare:
        yield "X.0", f"{bare}.0"
        if abs(number) >= 1000:
            if "," in text:
                yield "X without commas", bare
            else:
                yield "X with commas", f"{int(number):,}"
                yield "X with LaTeX commas", f"{int(number):,}".replace(",", "{,}")
    yield "X.", f"{text}."
    if number >= 0:
        yield "$X (dollars)", f"${text}"
    yield "X with a unit", f"{text} apples"


def answer_after_other_numbers(answer: RightAnswer) -> str | None:
    """A right answer in prose, with other numbers or letters before it, as models reason; None for other answers."""
    if answer.kind == "number" and answer.text not in ("3", "17"):
        return f"There are 3 of 17 left. The answer is {answer.text}."
    if answer.kind == "letter" and answer.text != "A":
        return f"A good way is to try each one. The answer is {answer.text}."
    return None


def spellings_of_references(answers: Iterable[RightAnswer]) -> set[str]:
    """Names of the spellings that the references themselves have."""
    names = set()
    for answer in answers:
        text = answer.text
        if answer.kind != "number":
            continue
        if re.search(r"\d,\d{3}", text):
            names.add("X with commas")
        elif re.fullmatch(r"-?\d{4,}", text):
            names.add("X without commas")
        if "$" in answer.reference:
            names.add("$X (dollars)")
        if re.fullmatch(r"-?\d+\.0", text):
            names.add("X.0")
    return names
