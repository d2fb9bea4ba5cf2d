"""Scores: one answer, measured against its prompt and its reference; no model is needed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from difflib import SequenceMatcher
from itertools import dropwhile, takewhile

from truetune.generation.escapes import escapes_in
from truetune.generation.final_answers import bare_value, value_of
from truetune.generation.garbage import is_foreign_stutter, is_garbage, perplexity_of
from truetune.generation.language import language
from truetune.generation.looks import Answer, Prompt, Scores
from truetune.generation.loops import looped
from truetune.generation.mixing import changes_language
from truetune.generation.parsers import Parser, read, same
from truetune.generation.words import is_word, units, words, worth

GRAM = 4
ECHO = 4
"""Words that a question must have to be echoed"""
ECHO_ASKED = 3
"""The same of a question that is echoed with its mark"""
NEAR, NEAREST = 0.85, 10
"""Likeness of an answer that asks what was asked in nearly the same words, and the least letters of that"""
ECHOED = 12
"""Words of a longer question that are an echo"""
AGAIN, MUCH, SOME = 2, 0.5, 0.2
"""A question that is said so often, and is so much of the answer, is an echo, be it short; or is all of it; more often,
some of it"""
LONG, MORE = 10, 80
"""An answer is too long with so many times the words of its reference, and so many more"""
FAR = 200
"""More words than these make it too long even where it gives the reference and explains it"""
EDGE = 12
"""Words at both ends of an answer, in which a short reference may stand"""
_ROLES = re.compile(
    r"^[ \t>*]*("
    r"(?:User|Human|Assistant|USER|HUMAN|ASSISTANT)\**[ \t]*:"
    r"|(?:用户|助手|人类)[：:]"
    r"|\#{2,3}[ ]*(?:Instruction|Response|Input|Human|Assistant|User|System)\b:?"
    r"|<(?:\||｜)(?:im_start|im_end|user|assistant|system|end|endoftext|eot_id|start_header_id|User|Assistant)(?:\||｜)>"
    r"|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>|</?s>"
    r")",
    re.MULTILINE,
)

_CONTROL = re.compile(
    r"(?<![`'\"“‘«])(?:<\|[A-Za-z][\w.-]{0,40}\|>|<｜[^｜<>\n]{1,40}｜>|</?(?:start|end)_of_turn>"
    r"|\[/?INST\]|<</?SYS>>|\[/?(?:AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]|<(?:bos|eos|pad|unk)>"
    r"|\[(?:PAD|EOS|BOS|SEP|CLS)\]|<(?:extra_id_|unused|reserved_)\d+>|</s>|<s>(?=\s*\[INST\]))"
    r"(?![`'\"”’»]|\s*(?i:tokens?|tags?|markers?|symbols?)\b)"
)
"""Control tokens of any template, wherever they stand; in quotes, code or before `token` they are spoken of"""
_TURN = re.compile(
    r"<\|(?:im_start|start_header_id|user|assistant|system)\|>|<｜(?:User|Assistant)｜>|<start_of_turn>"
    r"|\[/?INST\]|<<SYS>>"
)
"""What begins a turn in the templates of any family"""
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_STRUCK_OUT = re.compile(r"<s>[^<>]{1,200}</s>")
"""HTML's tag for text that is no longer right"""

_ASKS = ("?", "？", "؟", ";")
COMMAS = (",", "，", "、", "،")
"""What a sentence continues behind: "Whether it is worth it, depends on ..." is an answer"""
_BARE = re.compile(r"^(system|user|assistant|model)$", re.MULTILINE)


def score(
    prompt: Prompt, answer: Answer, *, control: Collection[str] = (), parse: Parser | None = None
) -> Scores:
    """The scores of one answer; `control` are the tokenizer's control tokens as text.

    A loop, an echo or a marker that the reference has too is none.
    """
    said, wanted = answer.text, prompt.reference
    mine, theirs = words(said), words(wanted)
    known = bool(wanted.strip())
    tongue, other = language(said), language(wanted)
    perplexity = perplexity_of(answer.logprob, _tokens(answer))
    return Scores(
        stopped=answer.stop is not None,
        empty=not said.strip(),
        looped=looped(said, cut=answer.stop is None) and not looped(wanted, cut=True),
        repetition=_repetition(mine),
        echoed=_echoes(prompt.question, said) and not _echoes(prompt.question, wanted),
        markers=_own_markers(said, wanted, prompt.question, control),
        language=tongue,
        switched=changes_language(said, wanted, _said_before(prompt), tongue, other),
        length_ratio=_tokens(answer) / len(prompt.reference_ids) if prompt.reference_ids else None,
        exact=said.split() == wanted.split() if known else None,
        overlap=_overlap(mine, theirs) if known else None,
        parsed=None if parse is None else read(parse, said) is not None,
        agrees=_agrees(parse, said, wanted) if parse is not None and known else None,
        garbage=(is_garbage(said, tongue, perplexity) and not is_garbage(wanted, other))
        or (not known and is_foreign_stutter(said, prompt.question)),
        perplexity=perplexity,
        too_long=_is_too_long(mine, theirs) if known else None,
        escapes=escapes_in(said, _said_before(prompt)),
    )


def _said_before(prompt: Prompt) -> str:
    """The question, and what was said before it."""
    if prompt.chat is None:
        return prompt.question
    contents = (message.get("content") for message in prompt.chat.messages)
    return "\n".join(content for content in contents if isinstance(content, str))


def _tokens(answer: Answer) -> int:
    return len(answer.ids) + (answer.stop is not None)


def _repetition(said: list[str]) -> float:
    """Share of the 4-grams that stand before."""
    grams = list(zip(*(said[i:] for i in range(GRAM)), strict=False))
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _echoes(question: str, text: str) -> bool:
    """Does a text begin with the question, as a sentence of its own? Or is it the beginning of a long one, or little
    else than the question, once or again and again?"""
    asked, said = (
        list(dropwhile(lambda unit: not is_word(unit), units(part))) for part in (question, text)
    )
    while asked and not is_word(asked[-1]):
        asked.pop()
    if _is_said_again(asked, said) or _is_near(question, text):
        return True
    if worth(asked) < (
        ECHO_ASKED if units(question)[-1:] == said[len(asked) : len(asked) + 1] else ECHO
    ):
        return False
    if said[: len(asked)] == asked:
        following = list(takewhile(lambda unit: not is_word(unit), said[len(asked) :]))
        return len(said) == len(asked) or (bool(following) and following[-1] not in COMMAS)
    return worth(said) >= ECHOED and asked[: len(said)] == said


def _is_said_again(asked: list[str], said: list[str]) -> bool:
    """Is a text little else than the question? A greeting may be returned: a question has two words, or marks in it."""
    short = worth(asked) < 2 or len(asked) < 3
    if not asked or (short and worth(asked) < 1):
        return False
    times = at = 0
    while at + len(asked) <= len(said):
        found = said[at : at + len(asked)] == asked
        times += found
        at += len(asked) if found else 1
    filled = times * len(asked)
    others = sum(map(is_word, said)) - times * sum(map(is_word, asked))
    if short:
        return times > AGAIN and filled >= MUCH * len(said)
    often = times > AGAIN and filled >= SOME * len(said)
    return often or (times >= AGAIN and filled >= MUCH * len(said)) or (times == 1 and others <= 0)


def _is_near(question: str, text: str) -> bool:
    """Does an answer ask nearly the same, and nothing else?"""
    asked, said = (" ".join(part.split()).casefold() for part in (question, text))
    if (
        asked[-1:] not in _ASKS
        or said[-1:] not in _ASKS
        or len(asked) < NEAREST
        or len(said) > 2 * len(asked)
    ):
        return False
    return SequenceMatcher(None, asked, said, autojunk=False).ratio() >= NEAR


def _is_too_long(said: list[str], wanted: list[str]) -> bool:
    """Far longer than the reference? One of a few words may be given and explained: at the start or at the end."""
    mine, theirs = worth(said) + _numbers(said), worth(wanted) + _numbers(wanted)
    if mine < LONG * theirs or mine - theirs < MORE:
        return False
    gives = theirs <= EDGE / 2 and (_holds(said[:EDGE], wanted) or _holds(said[-EDGE:], wanted))
    return not gives or mine - theirs >= FAR


def _numbers(found: list[str]) -> int:
    return sum(unit[0].isdigit() for unit in found)


def _holds(said: list[str], wanted: list[str]) -> bool:
    """Do these words stand in a text, one after the other?"""
    return any(said[at : at + len(wanted)] == wanted for at in range(len(said) - len(wanted) + 1))


def _own_markers(
    said: str, wanted: str, question: str, control: Collection[str]
) -> tuple[str, ...]:
    """Markers of an answer that the question does not have, nor the reference. A reference that begins another turn is
    no excuse: it was made of rows that were rendered already."""
    found = _markers(said, control) - _markers(f"{wanted}\n{question}", control)
    turns = {text for text in _TURN.findall(said) if text not in question}
    return tuple(sorted(found | (turns & _markers(said, ()))))


def _markers(text: str, control: Collection[str]) -> set[str]:
    """Control tokens of this tokenizer and of other templates anywhere, and role markers that begin a line."""
    prose = _STRUCK_OUT.sub(" ", _CODE.sub(" ", text))
    foreign = set(_CONTROL.findall(prose))
    roles = _bare_roles(text) | {
        found[1].strip().replace("*", "") for found in _ROLES.finditer(text)
    }
    return roles | foreign | {token for token in control if token in text}


def _bare_roles(text: str) -> set[str]:
    """`user` and `assistant` alone on their lines: what is left of a template whose control tokens were not decoded."""
    found = set(_BARE.findall(text))
    return found if "user" in found and len(found) > 1 else set()


def _overlap(said: list[str], wanted: list[str]) -> float:
    """F1 over the words of both, as often as they stand there (as SQuAD, but articles count; Chinese, Japanese and the
    like by characters)."""
    shared = sum((Counter(said) & Counter(wanted)).values())
    return 2 * shared / (len(said) + len(wanted)) if shared else float(said == wanted)


def _agrees(parse: Parser, said: str, wanted: str) -> bool | None:
    """Does the parser read of both the same? None where it reads nothing of a reference that is no bare value."""
    expected = read(parse, wanted)
    if expected is not None:
        return same(read(parse, said), expected)
    value = bare_value(wanted)
    return None if value is None else value_of(read(parse, said)) == value
