"""The template adds a system prompt that is in no row.

## What it does
If there are chats without a system message, renders one user turn and looks for text in front of it that the same
template does not write if the row has its own system message. It is always an info.

## Why it is bad
The model learns under a prompt that nobody wrote ("You are Qwen, created by ..."). Another framework's copy of the
template, or a server with its own default, sends another one; then training and serving differ in every row.

## Example
```yaml
files:
  chat_template.jinja: >-
    {% if messages[0].role != 'system' %}<|im_start|>system
    You are a helpful shop assistant named Pebble.<|im_end|>
    {% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
    {{ m.content }}<|im_end|>
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
    {% endif %}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Writing that system message into every row, and sending it in serving, does not change the training tokens, and makes
them independent of the default.

## References
- hiyouga/LLaMA-Factory#10772, hiyouga/LLaMA-Factory#5785, QwenLM/Qwen3#1141, InternLM/lmdeploy#3475
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_character
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_CHATS, explain_missing_template
from truetune.checks.rule import DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.render.template_probes import ANSWER, QUESTION, alternating_chat

PROBE_SYSTEM_PROMPT = "Mind the canary."
# Chosen, not measured: role names and headers are one word or two ("Human", "BEGINNING OF"), a
# prompt is a sentence.
MIN_PROMPT_WORDS = 3
"""Words of letters from which what stands before the question is a system prompt"""


class DefaultSystemPromptInjected(DataRule):
    code = "TPL006"
    fault = Fault.ROWS_CHANGED_BY_TEMPLATE
    symptoms = ("nothing-is-learned", "good-here-bad-there")
    severity = "info"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.chats = self.without = 0
        self.first: Batch | None = None

    def add_batch(self, batch: Batch) -> None:
        """Count the chats, and those without a system message; keep the first example of these."""
        chats = [row for row in batch.rows if row.is_chat]
        self.chats += len(chats)
        self.without += sum(map(_has_no_system_message, chats))
        if self.first is None:
            bare_chats = (
                i
                for i, example in enumerate(batch.examples)
                if example.row.is_chat and _has_no_system_message(example.row)
            )
            # One example is kept, not its batch, which would hold all its arrays to the end.
            self.first = next((batch.only([i]) for i in bare_chats), None)

    def unmet(self) -> Unmet | None:
        """Unmet where no row is a chat, or there is no template."""
        return explain_missing_template(self.probes) if self.chats else NO_CHATS

    def measurement_if_clean(self) -> Measurement:
        """The number of chats to which the template adds a system prompt, none, and how many have
        none of their own.
        """
        more = f" ({self.without:,} have none of their own)"
        return make_count_measurement(
            "chats to which the template adds a system prompt", 0, self.chats, more
        )

    def findings(self) -> Iterator[Finding]:
        injected = self._find_injected_prompt() if self.without else ""
        if injected:
            yield self.finding(
                f"the chat template adds its own system prompt to {self.without:,} of {self.chats:,} chats",
                "write the system message that you will serve with into every row, and send the same one in serving",
                evidence=[repr(injected if len(injected) <= 160 else injected[:157] + "...")],
                cases=self._case_of_first_chat(injected),
                count=self.without,
                total=self.chats,
            )

    def _case_of_first_chat(self, injected: str) -> Iterator[Case]:
        """The first chat that gets the injected prompt."""
        if self.first is not None:
            at = self.first.examples[0].rendering.text.find(injected)
            yield case_at_character(self.first, 0, at, "this row has no system message")

    def _find_injected_prompt(self) -> str:
        """What stands before the first user turn, less what stands there after a given system message."""
        plain = self.probes.text(alternating_chat(QUESTION, ANSWER))
        with_system = self.probes.text(
            [
                {"role": "system", "content": PROBE_SYSTEM_PROMPT},
                *alternating_chat(QUESTION, ANSWER),
            ]
        )
        if plain is None or QUESTION not in plain:
            return ""
        before = plain[: plain.index(QUESTION)]
        if (
            with_system is not None
            and PROBE_SYSTEM_PROMPT in with_system
            and QUESTION in with_system
        ):
            # What stands between a given system message and the question is the user's header, and
            # no prompt.
            begin = with_system.index(PROBE_SYSTEM_PROMPT) + len(PROBE_SYSTEM_PROMPT)
            header = with_system[begin : with_system.index(QUESTION)]
            before = before[: len(before) - _common_suffix_length(before, header)]
        bos = self.tokenizer.special.get("bos")
        before = before.removeprefix(bos.token if bos else "")
        words = sum(word.isalpha() for word in before.split())
        return before.strip() if words >= MIN_PROMPT_WORDS else ""


def _has_no_system_message(row: Conversation) -> bool:
    """Has a chat no system message?"""
    return row.messages[0].get("role") not in ("system", "developer")


def _common_suffix_length(one: str, other: str) -> int:
    """How many characters two texts have in common at their end."""
    count = 0
    while count < min(len(one), len(other)) and one[-1 - count] == other[-1 - count]:
        count += 1
    return count
