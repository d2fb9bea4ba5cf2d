"""Chats repeat their own turns: all answers are the same, or each question contains the turns before it.

## What it does
Compares the turns within each chat. It counts chats with two or more answers that are all the same text for different
questions. It also counts chats in which a later question contains the previous question and answer word for word. It
ignores answers that many chats share, such as a refusal or a class name. It is an error from 30 % of the chats with
several answers, and a warning from 5 %.

## Why it is bad
If all answers are the last one, a loop kept a reference instead of the value: questions are trained with the answers of
others. Questions that contain the history have it twice, once as turns and once as text. The chats are several times as
long, and no server builds such prompts.

## Example
```yaml
data:
  - messages:
      - {role: user, content: "Where is the boat of the pilot?"}
      - {role: assistant, content: "It costs twelve euros an hour today."}
      - {role: user, content: "And what does it cost to rent it?"}
      - {role: assistant, content: "It costs twelve euros an hour today."}
```

## Use instead
```yaml
data:
  - messages:
      - {role: user, content: "Where is the boat of the pilot?"}
      - {role: assistant, content: "At the northern pier, near the crane."}
      - {role: user, content: "And what does it cost to rent it?"}
      - {role: assistant, content: "It costs twelve euros an hour today."}
```

## Fix safety
Write the rows again from their source: what was overwritten can't be recovered from the file.

## References
- fw-ai/cookbook#388
- Python FAQ, "Why do lambdas defined in a loop with different values all return the same result?"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_CHATS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of

SAME_ANSWERS = "all answers of the chat are the same text"
HELD_HISTORY = "a question contains the turns before it"
MIN_CHARACTERS = 20
"""Characters of a text that repeats: "Yes." is an answer to many questions"""
# Chosen: a loop that keeps a name repeats another answer in each chat, and stock answers are a handful.
MIN_OWN_ANSWERS = 0.5
"""Different answers for each chat that repeats one, below which they are stock answers"""
MAX_REPEATED_ANSWERS, MAX_BEGINNING = 10_000, 100
"""Answers that are kept, and characters of each: a megabyte"""
# Chosen, not measured: a user may paste what was said, and an answer may be given again.
WARNING_SHARE, ERROR_SHARE, MIN_CHATS = 0.05, 0.3, 3


class TurnsRepeatInTheChat(DataRule):
    code = "ROW077"
    fault = Fault.CHATS_REPEAT_THEMSELVES
    symptoms = ("nothing-is-learned", "garbage-output")
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.chats = 0
        self.kinds: Counter[str] = Counter()
        self.cases: dict[str, list[Case]] = {SAME_ANSWERS: [], HELD_HISTORY: []}
        self.repeated_answers: set[str] = set()
        """Beginnings of the answers that chats repeat, up to a limit"""

    def add_batch(self, batch: Batch) -> None:
        """Count the chats of a batch that repeat their turns."""
        for row in batch.rows:
            questions, answers = (
                _indexes_and_texts_of_role(row, "user"),
                _indexes_and_texts_of_role(row, "assistant"),
            )
            if len(answers) < 2 or len(questions) < 2:
                continue
            self.chats += 1
            if _are_one_text(answers) and not _are_one_text(questions):
                self._count_chat_and_keep_place(batch, row, SAME_ANSWERS, answers[-1][0])
                if len(self.repeated_answers) < MAX_REPEATED_ANSWERS:
                    self.repeated_answers.add(answers[-1][1][:MAX_BEGINNING])
            elif _does_second_question_hold_first_exchange(questions, answers):
                self._count_chat_and_keep_place(batch, row, HELD_HISTORY, questions[-1][0])

    def _count_chat_and_keep_place(
        self, batch: Batch, row: Conversation, kind: str, turn: int
    ) -> None:
        """Count a chat, and keep its place."""
        self.kinds[kind] += 1
        if len(self.cases[kind]) < MAX_CASES:
            self.cases[kind].append(case_in_message(batch, row, turn, kind))

    def unmet(self) -> Unmet | None:
        """Unmet without chats of several turns."""
        return None if self.chats else NO_CHATS

    def measurement_if_clean(self) -> Measurement:
        """How many chats of several answers repeat their turns."""
        return make_count_measurement(
            "chats of several answers that repeat their own turns", self.kinds.total(), self.chats
        )

    def findings(self) -> Iterator[Finding]:
        for kind, remedy in (
            (
                SAME_ANSWERS,
                (
                    "write the rows again from their source, each turn with its own answer (create a new message in"
                    " each pass of the loop)"
                ),
            ),
            (
                HELD_HISTORY,
                "leave the history out of `content`: the template writes the earlier turns itself",
            ),
        ):
            count, share = self.kinds[kind], self.kinds[kind] / max(1, self.chats)
            if share < WARNING_SHARE or count < min(MIN_CHATS, self.chats):
                continue
            if kind == SAME_ANSWERS and self._are_stock_answers():
                continue
            yield self.finding(
                f"in {count:,} of {self.chats:,} chats with several answers, {kind}",
                remedy,
                severity="error" if share >= ERROR_SHARE else "warning",
                cases=self.cases[kind],
                count=count,
                total=self.chats,
            )

    def _are_stock_answers(self) -> bool:
        """Are the answers that chats repeat a few texts for many chats: a refusal, the name of a class?"""
        kept = min(self.kinds[SAME_ANSWERS], MAX_REPEATED_ANSWERS)
        return len(self.repeated_answers) < MIN_OWN_ANSWERS * kept


def _indexes_and_texts_of_role(row: Conversation, role: str) -> list[tuple[int, str]]:
    """(index, text) of the messages of a role that have a text, without calls of tools."""
    return [
        (index, text)
        for index, message in enumerate(row.messages)
        if message.get("role") == role
        and not message.get("tool_calls")
        and (text := text_of(message.get("content")).strip())
    ]


def _are_one_text(turns: list[tuple[int, str]]) -> bool:
    """Are all turns the same text, longer than a word or two?"""
    return len({text for _, text in turns}) == 1 and len(turns[0][1]) >= MIN_CHARACTERS


def _does_second_question_hold_first_exchange(
    questions: list[tuple[int, str]], answers: list[tuple[int, str]]
) -> bool:
    """Holds the second question the first one and its answer, word for word?"""
    (_, first), (_, second) = questions[:2]
    answer = answers[0][1]
    is_long = len(first) + len(answer) >= 2 * MIN_CHARACTERS
    return is_long and first in second and answer in second
