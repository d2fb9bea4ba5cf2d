"""Several rows are beginnings of one conversation, and every answer in each row is in the loss.

## What it does
Counts chats that are, word for word, the beginning of another chat in the data, if the answers before the last one are
in the loss too. Chats with the loss on the last answer only are fine (`learn: last`, `mask_history: true`, rows with a
separate prompt, messages with `train: false` or `weight: 0`): such rows are made for that. It is a warning from 5 % of
the chats, and an info below.

## Why it is bad
If a conversation of five answers became five rows, its first answer is trained on five times per epoch and its last one
once. The steps and their cost more than double. If the evaluation rows are chosen at random, the beginnings of their
conversations are in the training data.

## Example
```yaml
spec: {trained_by: trl}
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - {role: assistant, content: "Yes, until five."}
  - messages:
      - {role: user, content: "Is it open?"}
      - {role: assistant, content: "Yes, until five."}
      - {role: user, content: "And on Sunday?"}
      - {role: assistant, content: It is closed.}
```

## Use instead
```yaml
spec: {trained_by: trl}
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - {role: assistant, content: "Yes, until five."}
      - {role: user, content: "And on Sunday?"}
      - {role: assistant, content: It is closed.}
```

## Fix safety
Keeping only the longest row of each conversation trains on each answer once. Rows with the loss on the last answer only
teach the same, at a higher cost.

## References
- OpenCodeInterpreter/OpenCodeInterpreter#20
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.find_near_copies import GrowingArray
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_CHATS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation, Message, Origin
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of

NO_INNER_ANSWERS = Unmet("it is about chats of several answers that are all learned")
# Chosen, not measured: two short chats may begin alike ("Hi" and its greeting) without being one conversation.
MIN_BEGINNINGS = 2
"""Chats that are the beginning of others, from which it is no chance"""
MIN_WARNING_SHARE = 0.05
"""Share of the chats from which it is a warning"""


class ConversationPrefixesRelearnEarlierAnswers(DataRule):
    code = "ROW071"
    fault = Fault.ROWS_TRAINED_MORE_THAN_ONCE
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.chats = 0
        self.wholes, self.beginnings = GrowingArray(), GrowingArray()
        """Hashes of whole chats, and of what precedes the later answers of each"""
        self.origins: list[Origin] = []
        """Of the chats whose hash is in `wholes`"""

    def add_batch(self, batch: Batch) -> None:
        """Keep the hashes of a batch's chats, and of their beginnings."""
        wholes: list[bytes] = []
        beginnings: list[bytes] = []
        for row in batch.rows:
            if not row.is_chat or row.is_preference or row.prompt_messages is not None:
                continue
            self.chats += 1
            *inner, last = _hashes_up_to_each_learned_answer(row) or [b""]
            beginnings += inner
            if last:
                wholes.append(last)
                self.origins.append(row.origin)
        self.wholes.add(np.frombuffer(b"".join(wholes), dtype=np.uint64))
        self.beginnings.add(np.frombuffer(b"".join(beginnings), dtype=np.uint64))

    def unmet(self) -> Unmet | None:
        """Unmet without chats of several answers, and where the last one alone is learned."""
        if not self.chats:
            return NO_CHATS
        if self.setup.spec.learn.what == "last" or not len(self.beginnings.whole()):
            return NO_INNER_ANSWERS
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many chats are the beginning of another one."""
        return make_count_measurement(
            "chats that are the beginning of another one",
            len(self._find_chats_that_begin_other_chats()),
            self.chats,
        )

    def _find_chats_that_begin_other_chats(self) -> list[int]:
        """The chats, by their place in `origins`, that are the beginning of another one and learn all answers."""
        if self.setup.spec.learn.what == "last":
            return []
        is_beginning = np.isin(self.wholes.whole(), self.beginnings.whole())
        return [int(place) for place in np.flatnonzero(is_beginning)]

    def findings(self) -> Iterator[Finding]:
        found = self._find_chats_that_begin_other_chats()
        if not found or len(found) < min(MIN_BEGINNINGS, self.chats // 2):
            return
        # Not of all beginnings: a greeting with which many chats begin is no conversation in several rows.
        beginnings = self.beginnings.whole()
        shared = beginnings[np.isin(beginnings, self.wholes.whole())]
        most = max(Counter(shared.tolist()).values()) + 1
        yield self.finding(
            f"{len(found):,} of {self.chats:,} chats are the beginning of another one, and all their answers are in"
            f" the loss: an early answer is trained on up to {most:,} times per epoch, a last one once",
            "keep only the longest row of each conversation, or put only the last answer of each row in the loss"
            " (mask_history: true in LLaMA-Factory; a prompt and a completion in TRL; `train: false` on earlier"
            " messages in Axolotl)",
            severity="warning" if len(found) >= MIN_WARNING_SHARE * self.chats else "info",
            cases=[
                Case("the beginning of another chat", self.origins[place])
                for place in found[:MAX_CASES]
            ],
            count=len(found),
            total=self.chats,
        )


def _hashes_up_to_each_learned_answer(row: Conversation) -> list[bytes]:
    """The hash of a chat up to each answer that is learned, 8 bytes each; the last one is of the whole chat.

    None of them where the chat ends in no learned answer: such a row was cut otherwise.
    """
    digest = blake2b(digest_size=8)
    hashes: list[bytes] = []
    is_learned = False
    for message in row.messages:
        text = f"{message.get('role')}\0{text_of(message.get('content'))}\0{_tool_calls_as_text(message)}\0"
        digest.update(text.encode("utf-8", "surrogatepass"))
        is_learned = _is_learned(message)
        if is_learned:
            hashes.append(digest.copy().digest())
    return hashes if is_learned else []


def _is_learned(message: Message) -> bool:
    """Is a message an answer with a loss?"""
    is_answer = message.get("role") == "assistant"
    return is_answer and bool(message.get("train", True)) and bool(message.get("weight", 1))


def _tool_calls_as_text(message: Message) -> str:
    """The tool calls of a message as one text."""
    return str(message.get("tool_calls") or "")
