"""The two sides of a pair have different prompts, or repeat the prompt.

## What it does
Counts the pairs in which a side begins with another question after the prompt: the prompt again, or a different one
than the other side's. In plain text: both sides begin with the whole prompt, or with a rendered turn that contains it;
or the two have no common beginning and no prompt is given. It is an error from 10 % of the pairs, and a warning below.

## Why it is bad
DPO compares two answers to one prompt. With different prompts it compares questions, and makes these more likely. With
the prompt inside the answers, the model learns to repeat the question.

## Example
```yaml
data:
  - {chosen: [{role: user, content: "Is it open?"}, {role: assistant, content: It is.}],
     rejected: [{role: user, content: "When is it open?"}, {role: assistant, content: Who knows.}]}
```

## Use instead
```yaml
data:
  - {chosen: [{role: user, content: "Is it open?"}, {role: assistant, content: It is.}],
     rejected: [{role: user, content: "Is it open?"}, {role: assistant, content: Who knows.}]}
```

## Fix safety
If the prompt occurs twice, removing it from both sides (or dropping the prompt column) changes nothing else. Pairs with
different prompts are not pairs: drop them, or join the answers by prompt again.

## References
- huggingface/trl#2209, huggingface/trl#2551, huggingface/trl#1233
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.make_cases_at_tokens_and_turns import case_in_rejected_side, case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, PairRule, Setup
from truetune.data.conversation import Conversation, Message
from truetune.encoding.batch import Batch

PROMPT_FAULTS = {
    "twice": "the prompt occurs twice, before the answers and inside them",
    "other": "a side begins with another question",
    "none": "the sides share no beginning, and there is no prompt",
}
ASKING_ROLES = ("user", "system", "developer")
# Chosen, not measured: "Hi" begins an answer as well as a prompt, a sentence does not. At 8,
# greetings would count; at 32, short questions that stand in both sides would be missed.
MIN_PROMPT_CHARACTERS = 16
"""Characters from which an answer that begins with the whole prompt is no chance."""
# Chosen, not measured: single pairs with prompts of their own are mistakes of the data, a tenth is
# one of the script.
ERROR_SHARE = 0.1
"""Share of the pairs from which it is an error"""
ASKING_TURN = re.compile(
    r"(?:<[|｜]?[\w ]+[|｜]?>|\[INST\]|<<SYS>>|#{2,3} ?(?:Instruction|User|Human|Question):"
    r"|\b(?:user|human|USER|Human):?)\s*$"
)
"""What a template writes in front of a question"""
PromptFault = tuple[str, str, Callable[[Batch, Conversation, str], Case]]
"""What is wrong (empty: nothing), the evidence, and what makes a case of it"""


class PairPromptNotShared(PairRule):
    code = "PREF007"
    fault = Fault.PAIR_PROMPTS_WRONG
    symptoms = ("dpo-without-effect",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.kinds: Counter[str] = Counter()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the pairs of a batch whose sides do not share one prompt."""
        for row in batch.rows:
            if row.rejected is None:
                continue
            self.pairs += 1
            kind, text, at = (
                _prompt_fault_of_messages(row)
                if isinstance(row.rejected, list)
                else _prompt_fault_of_strings(row)
            )
            if kind:
                self.kinds[kind] += 1
                if len(self.cases) < MAX_CASES:
                    self.cases.append(at(batch, row, text))

    def measurement_if_clean(self) -> Measurement:
        """How many pairs have sides that do not share one prompt."""
        return make_count_measurement(
            "pairs whose sides do not share one prompt", self.kinds.total(), self.pairs
        )

    def findings(self) -> Iterator[Finding]:
        count = self.kinds.total()
        if count:
            yield self.finding(
                self._describe_faults(count),
                "give the prompt once (in its own column, or at the beginning of both sides), and put only the"
                " answers into chosen and rejected",
                severity="error" if count >= ERROR_SHARE * self.pairs else "warning",
                evidence=[
                    f"{PROMPT_FAULTS[kind]}: {n:,} pairs" for kind, n in self.kinds.most_common()
                ],
                cases=self.cases,
                count=count,
                total=self.pairs,
            )

    def _describe_faults(self, count: int) -> str:
        """What is wrong with the pairs, where it is the same in all; else what they have in common."""
        if self.kinds["twice"] == count:
            return (
                f"the prompt occurs twice in {count:,} of {self.pairs:,} pairs: before the answers, and again inside"
                " chosen or rejected"
            )
        return (
            f"{count:,} of {self.pairs:,} pairs do not share one prompt: DPO then compares questions,"
            " not answers"
        )


def _prompt_fault_of_messages(row: Conversation) -> PromptFault:
    """What is wrong with the prompt of a pair of chats."""
    cut = row.prompt_messages or 0
    prompt = row.messages[:cut]
    for name, side, at in (
        ("chosen", row.messages[cut:], case_in_row),
        ("rejected", row.rejected, case_in_rejected_side),
    ):
        if isinstance(side, list) and side and side[0].get("role") in ASKING_ROLES:
            kind = "twice" if _begins_with_prompt(side, prompt) else "other"
            return kind, f"the {name} side begins with {_show_message(side[0])}", at
    return "", "", case_in_row


def _begins_with_prompt(side: list[Message], prompt: list[Message]) -> bool:
    """Does a side begin with the prompt, or with its last question?"""
    questions = [message.get("content") for message in prompt if message.get("role") == "user"]
    return bool(questions) and any(
        message.get("content") == questions[-1] for message in side[: len(prompt)]
    )


def _prompt_fault_of_strings(row: Conversation) -> PromptFault:
    """What is wrong with the prompt of a pair in plain strings."""
    prompt, chosen, rejected = row.prompt or "", row.completion or "", str(row.rejected)
    if not prompt:
        return "none", f"chosen {chosen[:40]!r}, rejected {rejected[:40]!r}", case_in_row
    bare = prompt.strip()
    # Both sides: an answer that repeats its question is a way to answer, and rarely that of chosen
    # and rejected at once.
    both_begin = chosen.lstrip().startswith(bare) and rejected.lstrip().startswith(bare)
    if len(bare) >= MIN_PROMPT_CHARACTERS and both_begin:
        return "twice", f"both sides begin with the prompt {bare[:60]!r}", case_in_row
    if len(bare) >= MIN_PROMPT_CHARACTERS and _do_both_hold_rendered_prompt(bare, chosen, rejected):
        return "twice", f"both sides contain the turn of the prompt {bare[:60]!r}", case_in_row
    return "", "", case_in_row


def _do_both_hold_rendered_prompt(prompt: str, chosen: str, rejected: str) -> bool:
    """Do both sides begin with a turn that asks the prompt: the whole conversation, rendered by a template?"""
    before, repeated, _ = chosen.partition(prompt)
    return (
        bool(repeated)
        and rejected.startswith(before + prompt)
        and ASKING_TURN.search(before) is not None
    )


def _show_message(message: Message) -> str:
    """The role and the beginning of a message in one line: `user: 'How do I ...'`."""
    return f"{message.get('role')}: {str(message.get('content'))[:60]!r}"
