"""LLaMA-Factory drops chats whose turns do not alternate.

## What it does
For rows that LLaMA-Factory trains on: counts chats that do not begin with a user turn (after the system turn), or in
which two turns of one side follow each other. Tool results count as the user's side, function calls as the assistant's.
Several tool results in a row are fine if the rows are in OpenAI's format, since its reader joins them. Chats that only
lack their last answer are reported by `row-ends-without-answer`, unknown roles by `turn-roles-unknown-to-template`. It
is an error from 5 % of the chats, and a warning below.

## Why it is bad
LLaMA-Factory expects the user and the assistant to take turns. It drops any other chat, with one line in the output
("Invalid role tag", "Dropped invalid example"), and trains on the rest. Chat logs often have a greeting by the
assistant, or a message sent in two parts.

## Example
```yaml
spec: {trained_by: llama-factory}
data:
  - conversations:
      - {from: gpt, value: "Hello, how can I help?"}
      - {from: human, value: "Is it open?"}
      - {from: gpt, value: It is open.}
```

## Use instead
```yaml
spec: {trained_by: llama-factory}
data:
  - conversations:
      - {from: human, value: "Is it open?"}
      - {from: gpt, value: It is open.}
```

## Fix safety
Joining consecutive turns of one side keeps all texts. You can drop a greeting, move it into the system turn, or put a
short user turn before it.

## References
- hiyouga/LlamaFactory#2962, hiyouga/LlamaFactory#2529
- LLaMA-Factory, src/llamafactory/data/converter.py (`SharegptDatasetConverter`)
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

WANTS_ALTERNATING_TURNS = "llama-factory"
SIDES = {
    "user": "the user",
    "tool": "the user",
    "function": "the user",
    "ipython": "the user",
    "assistant": "the assistant",
}
"""Role -> the side that it stands for"""
RESULTS = ("tool", "function", "ipython")
# Chosen: most logs have a few odd chats; a twentieth of the data is worth a stop.
ERROR_ONE_IN = 20
"""Share of the chats, as 1 in so many, from which it is an error"""


class ChatsDroppedForTurnOrder(DataRule):
    code = "ROW068"
    fault = Fault.ROLES_NOT_ACCEPTED
    symptoms = ("nothing-is-learned",)
    severity = "error"
    needs_tokenizer = False
    moot_where = ("roles-exchanged",)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.chats = 0
        self.faults: Counter[str] = Counter()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the chats of a batch whose turns do not alternate."""
        # Other trainers take any order.
        if self.setup.trainer.name != WANTS_ALTERNATING_TURNS:
            return
        for row in batch.rows:
            if not row.is_chat:
                continue
            self.chats += 1
            index_and_fault = _index_and_fault_of_first_misplaced_turn(row)
            if index_and_fault is None:
                continue
            place, fault = index_and_fault
            self.faults[fault] += 1
            if len(self.cases) < MAX_CASES:
                self.cases.append(case_in_message(batch, row, place, fault))

    def unmet(self) -> Unmet | None:
        """Unmet without chats, and for a trainer that takes any order."""
        if self.setup.trainer.name != WANTS_ALTERNATING_TURNS:
            return Unmet("it is about rows that LLaMA-Factory trains")
        return None if self.chats else NO_CHATS

    def measurement_if_clean(self) -> Measurement:
        """How many chats have turns that do not alternate."""
        return make_count_measurement(
            "chats whose turns do not alternate", self.faults.total(), self.chats
        )

    def findings(self) -> Iterator[Finding]:
        count = self.faults.total()
        if not count:
            return
        faults = ", ".join(f"{fault} ({chats:,})" for fault, chats in self.faults.most_common())
        yield self.finding(
            f"LLaMA-Factory drops {count:,} of {self.chats:,} chats, since their turns do not alternate: {faults}",
            "join consecutive turns of one side, and begin each chat with a user turn",
            severity="error" if count * ERROR_ONE_IN >= self.chats else "warning",
            cases=self.cases,
            count=count,
            total=self.chats,
        )


def _index_and_fault_of_first_misplaced_turn(row: Conversation) -> tuple[int, str] | None:
    """The first message of a chat that is not its side's turn, and what is wrong; None if there is none.

    None as well where a role is not known.
    """
    roles = [str(message.get("role")) for message in row.messages]
    begin = 1 if roles[:1] == ["system"] else 0
    if any(role not in SIDES for role in roles[begin:]):
        return None
    previous = SIDES["assistant"]
    for place in range(begin, len(roles)):
        side = SIDES[roles[place]]
        if side != previous:
            previous = side
        elif place == begin:
            return place, f"{side} speaks first"
        elif not (_are_adjacent_tool_results(roles, place) and row.format != "sharegpt"):
            return place, f"two turns of {side} follow each other"
    return None


def _are_adjacent_tool_results(roles: list[str], place: int) -> bool:
    """Are a message and the one before it results of tools?"""
    return roles[place] in RESULTS and roles[place - 1] in RESULTS
