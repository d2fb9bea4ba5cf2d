"""Finds whether the wrong column is learned: samples answers with their prompts, and the columns
that nothing reads.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from truetune.checks.answer_diversity import (
    ColumnInformation,
    compressed_bits_per_row,
    most_informative_column,
)
from truetune.checks.recognise_prose_and_media_columns import is_prose
from truetune.data.conversation import Conversation
from truetune.encoding.row_fingerprints import text_of

# Chosen, not measured: a thousand rows tell a column with four times the bits; all rows would have to be kept.
SAMPLED = 1_000
"""Rows whose columns are compared"""
# Chosen, not measured: instructions name their labels at the beginning or behind a question of some pages.
KEPT_PROMPT = 4_000
"""Characters of a prompt in which names of labels are looked for"""
# Chosen, not measured. At double, "yes" and "no" beside a column of reasons is missed; at half, any notes are told.
TELLING = 4.0
"""Times as many bits a row as the answers hold, from which another column may be what was meant"""
PROSE = 100.0
"""Bits a row from which a column holds sentences: about ten words. Ids, dates and names have fewer; links may have more
and are no prose"""
NOT_MAPPED = " (not mapped)"


class AnswersBesideUnreadColumns:
    """The first rows with an answer."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.prompts: list[str] = []
        self.unused: defaultdict[str, list[str]] = defaultdict(list)
        """Texts by column"""

    def add(self, row: Conversation, answer: str) -> None:
        """Keep one more row with its answer; rows after the first SAMPLED are left out."""
        if len(self.answers) == SAMPLED:
            return
        self.answers.append(answer)
        self.prompts.append(_texts_before_last_message(row)[:KEPT_PROMPT])
        for name, text in _texts_of_unused_columns(row):
            self.unused[name].append(text)

    def unread_column_with_more_than_answers(self) -> ColumnInformation:
        """The unread column of prose that holds far more information than the answers, with its
        bits a row; ("", 0.0) if none does.
        """
        most = [
            (name, texts)
            for name, texts in self.unused.items()
            # Half of the rows: a column that is empty in most of them was not meant to be trained.
            if sum(map(is_prose, texts)) * 2 >= len(self.answers)
        ]
        name, bits = most_informative_column(most)
        if bits < PROSE or bits < TELLING * compressed_bits_per_row(self.answers):
            return ColumnInformation("", 0.0)
        return ColumnInformation(name, bits)

    def are_answers_class_labels(self, labels: Iterable[str]) -> bool:
        """Are these answers class labels of their prompts: does an instruction name them, or do the
        prompts predict them?
        """
        return self.do_prompts_name_labels(labels) or do_prompts_predict_labels(
            self.prompts, self.answers
        )

    def do_prompts_name_labels(self, labels: Iterable[str]) -> bool:
        """Do most prompts name two or more of these labels, as the instruction of a classification
        does?
        """
        words = [re.compile(rf"\b{re.escape(label)}\b", re.IGNORECASE) for label in labels]
        named = sum(
            sum(word.search(prompt) is not None for word in words) > 1 for prompt in self.prompts
        )
        return named * 2 > len(self.prompts)


def do_prompts_predict_labels(prompts: Sequence[str], labels: Sequence[str]) -> bool:
    """Do the words of a prompt say which label it has, more often than chance does? Then they are its class.

    Naive Bayes on the words, trained on one half of the rows and tried on the other; it must beat the commonest label
    by three standard errors.
    """
    words = [frozenset(re.findall(r"\w+", prompt.casefold())) for prompt in prompts]
    # A fixed seed: a report must be the same for the same data.
    order = random.Random(0).sample(
        range(len(labels)), len(labels)
    )  # rows may be sorted, or take turns
    halves = (order[::2], order[1::2])
    hits = chance = 0
    for train, held_out in (halves, halves[::-1]):
        predict = _train_naive_bayes([words[i] for i in train], [labels[i] for i in train])
        (commonest, _), *_ = Counter(labels[i] for i in train).most_common(1)
        hits += sum(predict(words[i]) == labels[i] for i in held_out)
        chance += sum(labels[i] == commonest for i in held_out)
    share = chance / len(labels)
    # Three standard errors of a binomial at the share of the commonest label.
    return hits - chance > 3 * math.sqrt(len(labels) * share * (1 - share))


def _train_naive_bayes(
    rows: Sequence[frozenset[str]], labels: Sequence[str]
) -> Callable[[frozenset[str]], str]:
    """Trains a naive Bayes classifier; returns a function that gives the likeliest label of a row
    by its set of words.

    One row of each word is added (Laplace).
    """
    sizes = Counter(labels)
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row, label in zip(rows, labels, strict=True):
        counts[label].update(row)

    def score(label: str, row: frozenset[str]) -> float:
        known = math.log(sizes[label])
        # One row of each added (Laplace): a word that a label never had would otherwise rule it out for good.
        return known + sum(math.log((counts[label][word] + 1) / (sizes[label] + 2)) for word in row)

    return lambda row: max(sizes, key=lambda label: score(label, row))


def last_answer(row: Conversation) -> str | None:
    """The text of a row's last answer; None if it has none, or if that answer calls a tool."""
    if not row.is_chat:
        return row.completion
    for message in reversed(row.messages):
        if message.get("role") == "assistant":
            calls = message.get("tool_calls") or message.get("function_call")
            return None if calls else text_of(message.get("content"))
    return None


def last_user_text(row: Conversation) -> str:
    """What the user said last, without the turns before it, which may hold answers."""
    if not row.is_chat:
        return row.prompt or ""
    texts = [text_of(one.get("content")) for one in row.messages if one.get("role") == "user"]
    return texts[-1] if texts else ""


def texts_before_last_answer(row: Conversation) -> str:
    """The texts of all messages before the last answer, joined by line breaks; of a row without
    messages its prompt.
    """
    if not row.is_chat:
        return row.prompt or ""
    last = max(
        (i for i, message in enumerate(row.messages) if message.get("role") == "assistant"),
        default=0,
    )
    return "\n".join(text_of(message.get("content")) for message in row.messages[:last])


def _texts_before_last_message(row: Conversation) -> str:
    """The texts of all messages but the last, joined by line breaks; of a row without messages its
    prompt.
    """
    if not row.is_chat:
        return row.prompt or ""
    return "\n".join(text_of(message.get("content")) for message in row.messages[:-1])


def _texts_of_unused_columns(row: Conversation) -> Iterator[tuple[str, str]]:
    """(column, text) of the columns that reach neither prompt nor answer and hold text."""
    raw: Mapping[str, Any] = row.raw or {}
    for column in row.unused:
        name = column.removesuffix(NOT_MAPPED)
        value = raw.get(name)
        if isinstance(value, str) and value.strip():
            yield name, value
