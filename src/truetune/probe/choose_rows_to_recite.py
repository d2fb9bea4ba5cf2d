"""Chooses the rows that a rehearsal memorises and recites: each with its prompt as trained and as served, its answer.

The batches hold ids; where the prompt ends and the answer begins in them is found by what is known best: the user's
row that they were made from (`truetune.probe.read_prompt_and_answer_of_row`), the template's generation prompt, the
labels, and at last a share of the length (`RecitedRow.kind` says which).

Trade-off: only the shortest documents are taken, since memorising costs time for each token. A fault that long rows
alone have (truncation) is not seen by a recitation; the audit looks for those in all batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from truetune.probe.memorise_batch import MAX_ROW_TOKENS, Example
from truetune.probe.read_prompt_and_answer_of_row import (
    PromptAndAnswer,
    generation_prompt_ids,
    parse_row,
    served_prompt_ids,
)

# Rows of the user's data among which those of the examples are looked for: as many as a rehearsal prepares
# (`rehearsal_overrides.MAX_ROWS`).
MAX_PARSED_ROWS = 256
IGNORED = -100
# Tokens before and after the first difference of two prompts that are shown: enough to recognise the place.
_SHOWN_BEFORE, _SHOWN_AFTER = 2, 6


@dataclass
class RowToRecite:
    """One row that is memorised and recited."""

    example: Example
    source: PromptAndAnswer | None
    """The user's row that it was made from; None where none was recognised"""
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


def parse_first_rows(source_data: Any) -> list[PromptAndAnswer]:
    """The first rows of the user's data set, those whose format is recognised."""
    if (
        source_data is None
        or not hasattr(source_data, "__getitem__")
        or not hasattr(source_data, "__len__")
    ):
        return []
    count = min(len(source_data), MAX_PARSED_ROWS)
    parsed = (parse_row(source_data[number], number) for number in range(count))
    return [row for row in parsed if row is not None]


def choose_shortest_rows_of_different_prompts(
    examples: list[Example],
    questions: list[PromptAndAnswer],
    tokenizer: Any,
    stops: set[int],
    count: int,
) -> list[RowToRecite]:
    """The shortest documents, of different prompts.

    Args:
        examples: documents of the prepared data.
        questions: rows of the user's data, by which prompts are recognised.
        tokenizer: of transformers.
        stops: ids that end an answer.
        count: of rows that are taken at most. One of more than MAX_ROW_TOKENS is taken only if there is no other.
    """
    texts = [
        " ".join(tokenizer.decode(example.ids, skip_special_tokens=True).split())
        for example in examples
    ]
    begins = generation_prompt_ids(tokenizer)
    shortest_first = sorted(
        range(len(examples)),
        key=lambda i: (len(examples[i].ids) > MAX_ROW_TOKENS, len(examples[i].ids)),
    )
    rows: list[RowToRecite] = []
    prompts: set[tuple[int, ...]] = set()
    for i in shortest_first:
        if len(rows) == count or (rows and len(examples[i].ids) > MAX_ROW_TOKENS):
            break
        source = next((row for row in questions if _contains_question(texts[i], row)), None)
        row = _as_recited_row(examples[i], source, tokenizer, stops, begins)
        # Two answers to one prompt can't both be recited, greedily.
        if row is not None and tuple(row.prompt) not in prompts:
            prompts.add(tuple(row.prompt))
            rows.append(row)
    return rows


def _contains_question(text: str, row: PromptAndAnswer) -> bool:
    """Does a document hold the question of this row, up to white space?"""
    question = " ".join(row.question.split())
    return bool(question) and question in text


def _as_recited_row(
    example: Example,
    source: PromptAndAnswer | None,
    tokenizer: Any,
    stops: set[int],
    begins: list[int],
) -> RowToRecite | None:
    """A document with its prompt and answer; None where one of them is empty.

    `begins` are the ids of the template's generation prompt.
    """
    ids, labels = example.ids, example.labels
    start, kind = _answer_start_and_how_it_is_known(ids, labels, source, tokenizer, begins)
    trained = ids[:start]
    prompt = _served_prompt(source, tokenizer) or trained
    if ids[: len(prompt)] == prompt:
        trained = prompt
    elif start >= len(prompt) and ids[start - len(prompt) : start] == prompt:
        kind = "inside"
    end = _first_stop_or_end(ids, len(trained), stops)
    if source is not None and labels is not None:
        answer = _token_where_text_last_stands(ids, source.answer.strip(), tokenizer)
        trained = ids[
            : _answer_start_behind_unsupervised_template(labels, len(trained), end, answer)
        ]
    gold = ids[len(trained) : end]
    if not prompt or not gold:
        return None
    decoded = tokenizer.decode(gold, skip_special_tokens=True)
    reference = decoded if source is None else source.answer
    return RowToRecite(example, source, trained, prompt, gold, reference, kind, end < len(ids))


def _served_prompt(source: PromptAndAnswer | None, tokenizer: Any) -> list[int] | None:
    """Ids of the prompt of a chat as it will be served; None where the row is no chat, or can't be rendered."""
    if source is None or not source.chat:
        return None
    return served_prompt_ids(source, tokenizer)


def _first_stop_or_end(ids: list[int], start: int, stops: set[int]) -> int:
    """Where the first stop id stands from `start` on; the end where there is none."""
    return next((i for i in range(start, len(ids)) if ids[i] in stops), len(ids))


def _answer_start_behind_unsupervised_template(
    labels: list[int], start: int, end: int, answer: int | None
) -> int:
    """Where the answer's labels begin, behind template text that is left out of the loss; else `start`.

    `answer` is the token at which the answer's text begins. Labels that begin only behind that mask a part of the
    answer: this is a fault to be found, so `start` stays.
    """
    first = next((i for i in range(start, end) if labels[i] != IGNORED), start)
    return first if answer is not None and first <= answer else start


def _answer_start_and_how_it_is_known(
    ids: list[int],
    labels: list[int] | None,
    source: PromptAndAnswer | None,
    tokenizer: Any,
    begins: list[int],
) -> tuple[int, str]:
    """Where the answer begins, and by what that is known; in the order of how sure each is."""
    kind = "chat" if source is not None and source.chat else "columns"
    answer = None
    if source is None:
        kind = "marker"
    else:
        answer = _token_where_text_last_stands(ids, source.answer.strip(), tokenizer)
    after_marker = _end_of_last_marker(ids, begins, len(ids) if answer is None else answer)
    if after_marker is not None:
        return after_marker, kind
    if answer is not None:
        return answer, kind
    if labels is not None and IGNORED in labels and set(labels) != {IGNORED}:
        return _start_of_last_labels(labels), "labels"
    if source is not None:
        after_question = _token_where_text_last_stands(
            ids, source.question.strip(), tokenizer, end=True
        )
        if after_question is not None:
            return after_question, kind
    # Plain text has no answer: the first quarter is taken as its prompt, eight tokens of it at least where it has 16.
    return max(min(8, len(ids) // 2), len(ids) // 4), "text"


def _end_of_last_marker(ids: list[int], marker: list[int], last: int) -> int | None:
    """Where the last occurrence of these ids ends, at `last` or before; None where there is none."""
    if not marker:
        return None
    for end in range(last, len(marker) - 1, -1):
        if ids[end - len(marker) : end] == marker:
            return end
    return None


def _start_of_last_labels(labels: list[int]) -> int:
    """Where the last stretch of labels in the loss begins."""
    last = max(i for i, label in enumerate(labels) if label != IGNORED)
    return max((i + 1 for i in range(last) if labels[i] == IGNORED), default=0)


def _token_where_text_last_stands(
    ids: list[int], text: str, tokenizer: Any, *, end: bool = False
) -> int | None:
    """The token at which a text begins (or behind its end), at its last place; None where it is not there.

    Found by decoding prefixes, in a binary search, since few tokenizers give offsets for ids. A prefix is decoded to a
    prefix of the text, up to a character whose bytes are in two tokens.
    """
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


def difference_of_served_and_trained_prompt(
    row: RowToRecite, tokenizer: Any
) -> dict[str, Any] | None:
    """Where the served prompt leaves the trained one, as JSON; None where it does not.

    `first` is the first token that differs, `same_end` whether both end alike over the generation prompt's length.
    """
    if row.trained == row.prompt:
        return None
    differing = (
        i
        for i, (trained, served) in enumerate(zip(row.trained, row.prompt, strict=False))
        if trained != served
    )
    first = next(differing, min(len(row.trained), len(row.prompt)))
    window = slice(max(first - _SHOWN_BEFORE, 0), first + _SHOWN_AFTER)
    end = len(generation_prompt_ids(tokenizer))
    return {
        "first": first,
        "same_end": row.trained[-end:] == row.prompt[-end:],
        "trained": tokenizer.decode(row.trained[window]),
        "served": tokenizer.decode(row.prompt[window]),
        "lengths": [len(row.trained), len(row.prompt)],
    }
