"""Finds conversations that stand in both sets: evaluation rows that begin as a training row does,
or continue one.

Rows that are made of each assistant turn with all that was said before it are beginnings of each other. Two rows of
different conversations are not, beyond a short greeting; an opening that many conversations share is known by its
different continuations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise

from truetune.data.conversation import Conversation, Origin
from truetune.encoding.row_fingerprints import text_of

# Chosen, not measured: a greeting and its reply are shorter.
MIN_CHARACTERS = 100
"""Characters of a beginning that two conversations do not have by chance"""
# Chosen, not measured: turns of one conversation have one continuation; an answer that was sampled twice has two.
MAX_CONTINUATIONS = 2
"""Different next turns of a beginning, above which it is the opening of many conversations"""
MAX_TURNS = 200
"""Turns of a row that are read"""


class SharedConversations:
    """Beginnings of the evaluation rows, and the rows that share them with training rows."""

    def __init__(self) -> None:
        self.whole: defaultdict[bytes, list[int]] = defaultdict(list)
        """Evaluation rows by all that they say"""
        self.beginnings: defaultdict[bytes, list[int]] = defaultdict(list)
        """Evaluation rows by a beginning that ends in an answer before their last"""
        self.continuations: defaultdict[bytes, set[bytes]] = defaultdict(set)
        """Next beginnings of a beginning, as far as it stands in the evaluation rows"""
        self.begin: dict[int, tuple[bytes, Origin]] = {}
        """Evaluation rows that are the beginning of a training row, which holds their answer"""
        self.continuing: dict[int, tuple[bytes, Origin]] = {}
        """Evaluation rows that continue a training row"""

    def remember_evaluation_row(self, number: int, row: Conversation) -> None:
        """Remember the beginnings of one row of the evaluation set."""
        prefixes = list(_hashes_of_long_beginnings(row))
        if not prefixes:
            return
        self.whole[prefixes[-1]].append(number)
        for one, following in pairwise(prefixes):
            self.beginnings[one].append(number)
            self.continuations[one].add(following)

    def compare_training_row(self, row: Conversation) -> None:
        """Compare a training row with those of the evaluation set."""
        prefixes = list(_hashes_of_long_beginnings(row))
        for one, following in pairwise(prefixes):
            if one in self.whole or one in self.beginnings:
                self.continuations[one].add(following)
            for number in self.whole.get(one, ()):
                self.begin.setdefault(number, (one, row.origin))
        if prefixes:
            for number in self.beginnings.get(prefixes[-1], ()):
                self.continuing.setdefault(number, (prefixes[-1], row.origin))

    def leaked_evaluation_rows(self) -> dict[int, Origin]:
        """Evaluation rows that share their conversation with a training row, and where that stands.

        Asked when all rows were read: only then is it known which beginnings open many conversations.
        """
        return {
            number: origin
            for number, (beginning, origin) in {**self.continuing, **self.begin}.items()
            if len(self.continuations[beginning]) <= MAX_CONTINUATIONS
        }

    def evidence(self) -> str:
        """How the evaluation rows and the training rows share conversations."""
        leaks = self.leaked_evaluation_rows()
        begin = len(leaks.keys() & self.begin.keys())
        return (
            f"{begin:,} are word for word the beginning of a training row, which holds their answer;"
            f" {len(leaks) - begin:,} continue a training row"
        )


def _hashes_of_long_beginnings(row: Conversation) -> Iterator[bytes]:
    """Hashes of what a row says up to each answer, as far as it is long; system prompts are left out."""
    if not row.is_chat or row.is_preference:
        return
    state, characters = blake2b(digest_size=16), 0
    for message in row.messages[:MAX_TURNS]:
        role = message.get("role")
        if role == "system":
            continue
        text = text_of(message.get("content")) + text_of(message.get("tool_calls"))
        words = " ".join(text.split())
        characters += len(words)
        state.update(f"{role}\x1f{words}\x1e".encode("utf-8", "surrogatepass"))
        if role == "assistant" and characters >= MIN_CHARACTERS:
            yield state.copy().digest()
