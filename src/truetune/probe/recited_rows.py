"""The rows that are memorised: each with its prompt as it is trained and as it will be served, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from truetune.probe.memorise_batch import MAX_TOKENS, Example
from truetune.probe.prompt_and_answer import (
    PromptAndAnswer,
    generation_prompt_ids,
    parse_row,
    served_prompt_ids,
)

MAX_PARSED_ROWS = 256
"""Given rows among which those of the examples are looked for"""


@dataclass
class RecitedRow:
    """One row that is memorised and recited."""

    example: Example
    given: PromptAndAnswer | None
    trained: list[int]
    """Prompt ids as they are in the row"""
    prompt: list[int]
    """Prompt ids as they will be served"""
    gold: list[int]
    """The answer as it is in the row, without its stop token"""
    reference: str
    kind: str
    """chat, columns, labels, marker: how prompt and answer were told apart; text: they are not, inside: the prompt
    stands behind other documents"""
    closed: bool
    """Does a stop token follow the answer in the row?"""


def parse_first_rows(given: Any) -> list[PromptAndAnswer]:
    """The first given rows, those that are recognised."""
    if given is None or not hasattr(given, "__getitem__") or not hasattr(given, "__len__"):
        return []
    found = (parse_row(given[number], number) for number in range(min(len(given), MAX_PARSED_ROWS)))
    return [row for row in found if row is not None]


def choose_rows(
    found: list[Example],
    questions: list[PromptAndAnswer],
    tokenizer: Any,
    stops: set[int],
    count: int,
) -> list[RecitedRow]:
    """The shortest documents, of different given rows."""
    texts = [
        " ".join(tokenizer.decode(example.ids, skip_special_tokens=True).split())
        for example in found
    ]
    begins = generation_prompt_ids(tokenizer)
    short = sorted(
        range(len(found)), key=lambda i: (len(found[i].ids) > MAX_TOKENS, len(found[i].ids))
    )
    made: list[RecitedRow] = []
    seen: set[tuple[int, ...]] = set()
    for i in short:
        if len(made) == count or (made and len(found[i].ids) > MAX_TOKENS):
            break
        question = next((q for q in questions if _contains_question(texts[i], q)), None)
        part = _as_recited_row(found[i], question, tokenizer, stops, begins)
        if part is not None and tuple(part.prompt) not in seen:
            seen.add(tuple(part.prompt))
            made.append(part)
    return made


def _contains_question(text: str, question: PromptAndAnswer) -> bool:
    wanted = " ".join(question.question.split())
    return bool(wanted) and wanted in text


def _as_recited_row(
    example: Example,
    given: PromptAndAnswer | None,
    tokenizer: Any,
    stops: set[int],
    begins: list[int],
) -> RecitedRow | None:
    ids, labels = example.ids, example.labels
    start, kind = _answer_start(ids, labels, given, tokenizer, begins)
    trained = ids[:start]
    prompt = (
        served_prompt_ids(given, tokenizer) if given is not None and given.chat else None
    ) or trained
    if ids[: len(prompt)] == prompt:
        trained = prompt
    elif start >= len(prompt) and ids[start - len(prompt) : start] == prompt:
        kind = "inside"
    end = next((i for i in range(len(trained), len(ids)) if ids[i] in stops), len(ids))
    if given is not None and labels is not None:
        trained = ids[
            : _first_supervised(
                labels, len(trained), end, _token_at_text(ids, given.answer.strip(), tokenizer)
            )
        ]
    gold = ids[len(trained) : end]
    if not prompt or not gold:
        return None
    reference = (
        given.answer if given is not None else tokenizer.decode(gold, skip_special_tokens=True)
    )
    return RecitedRow(example, given, trained, prompt, gold, reference, kind, end < len(ids))


def _first_supervised(labels: list[int], start: int, end: int, answer: int | None) -> int:
    """Where the labels of an answer begin, if the template's own text before it is left out of the loss."""
    first = next((i for i in range(start, end) if labels[i] != -100), start)
    return first if answer is not None and first <= answer else start


def _answer_start(
    ids: list[int],
    labels: list[int] | None,
    given: PromptAndAnswer | None,
    tokenizer: Any,
    begins: list[int],
) -> tuple[int, str]:
    """Where the answer begins, and by what that is known."""
    kind = "chat" if given is not None and given.chat else "columns"
    answer = _token_at_text(ids, given.answer.strip(), tokenizer) if given is not None else None
    for i in range(len(ids) if answer is None else answer, len(begins) - 1, -1) if begins else ():
        if ids[i - len(begins) : i] == begins:
            return i, kind if given is not None else "marker"
    if answer is not None:
        return answer, kind
    if labels is not None and -100 in labels and any(label != -100 for label in labels):
        last = max(i for i, label in enumerate(labels) if label != -100)
        return max((i + 1 for i in range(last) if labels[i] == -100), default=0), "labels"
    if (
        given is not None
        and (at := _token_at_text(ids, given.question.strip(), tokenizer, end=True)) is not None
    ):
        return at, kind
    return max(min(8, len(ids) // 2), len(ids) // 4), "text"


def _token_at_text(ids: list[int], text: str, tokenizer: Any, *, end: bool = False) -> int | None:
    """The token at which a text begins (or behind its end), at its last place; None where it is not there."""
    whole = tokenizer.decode(ids)
    at = whole.rfind(text)
    if at < 0 or not text:
        return None
    at += len(text) if end else 0
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if len(tokenizer.decode(ids[: middle + 1])) > at:
            high = middle
        else:
            low = middle + 1
    return low


def prompt_difference(part: RecitedRow, tokenizer: Any) -> dict[str, Any] | None:
    """Where the served prompt leaves the trained one, in ids; None where it does not."""
    if part.trained == part.prompt:
        return None
    both = zip(part.trained, part.prompt, strict=False)
    first = next(
        (i for i, (a, b) in enumerate(both) if a != b), min(len(part.trained), len(part.prompt))
    )
    shown = slice(max(first - 2, 0), first + 6)
    end = len(generation_prompt_ids(tokenizer))
    return {
        "first": first,
        "same_end": part.trained[-end:] == part.prompt[-end:],
        "trained": tokenizer.decode(part.trained[shown]),
        "served": tokenizer.decode(part.prompt[shown]),
        "lengths": [len(part.trained), len(part.prompt)],
    }
