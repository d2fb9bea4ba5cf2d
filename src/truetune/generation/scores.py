"""Scores: one answer, measured against its prompt and its reference; no model is needed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from itertools import dropwhile

from truetune.generation.garbage import is_garbage, perplexity_of
from truetune.generation.language import language, switched
from truetune.generation.looks import Answer, Prompt, Scores
from truetune.generation.loops import looped
from truetune.generation.parsers import Parser, read, same
from truetune.generation.words import is_word, units, words, worth

GRAM = 4
ECHO = 4
"""Words that a question must have to be echoed"""
ECHOED = 12
"""Words of a longer question that are an echo"""
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


def score(prompt: Prompt, answer: Answer, *, control: Collection[str] = (), parse: Parser | None = None) -> Scores:
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
        markers=tuple(sorted(_markers(said, control) - _markers(f"{wanted}\n{prompt.question}", control))),
        language=tongue,
        switched=switched(tongue, other) if known and tongue else None,
        length_ratio=_tokens(answer) / len(prompt.reference_ids) if prompt.reference_ids else None,
        exact=said.split() == wanted.split() if known else None,
        overlap=_overlap(mine, theirs) if known else None,
        parsed=None if parse is None else read(parse, said) is not None,
        agrees=_agrees(parse, said, wanted) if parse is not None and known else None,
        garbage=is_garbage(said, tongue, perplexity) and not is_garbage(wanted, other),
        perplexity=perplexity,
    )


def _tokens(answer: Answer) -> int:
    return len(answer.ids) + (answer.stop is not None)


def _repetition(said: list[str]) -> float:
    """Share of the 4-grams that stand before."""
    grams = list(zip(*(said[i:] for i in range(GRAM)), strict=False))
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _echoes(question: str, text: str) -> bool:
    """Does a text begin with the question, as a sentence of its own? Or is it the beginning of a long one?"""
    asked, said = (list(dropwhile(lambda unit: not is_word(unit), units(part))) for part in (question, text))
    while asked and not is_word(asked[-1]):
        asked.pop()
    if worth(asked) < ECHO:
        return False
    if said[: len(asked)] == asked:
        return len(said) == len(asked) or not is_word(said[len(asked)])
    return worth(said) >= ECHOED and asked[: len(said)] == said


def _markers(text: str, control: Collection[str]) -> set[str]:
    """Control tokens anywhere, and role markers that begin a line."""
    roles = {found[1].strip().replace("*", "") for found in _ROLES.finditer(text)}
    return roles | {token for token in control if token in text}


def _overlap(said: list[str], wanted: list[str]) -> float:
    """F1 over the words of both, as often as they stand there (as SQuAD, but articles count; Chinese, Japanese and the
    like by characters)."""
    shared = sum((Counter(said) & Counter(wanted)).values())
    return 2 * shared / (len(said) + len(wanted)) if shared else float(said == wanted)


def _agrees(parse: Parser, said: str, wanted: str) -> bool | None:
    """Does the parser read of both the same? None where it reads nothing of the reference."""
    expected = read(parse, wanted)
    return None if expected is None else same(read(parse, said), expected)
