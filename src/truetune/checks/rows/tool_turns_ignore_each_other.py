"""Answers ignore that a tool failed, or calls have arguments that the chat does not contain.

## What it does
Reads chats with tool calls, and counts

- results that are an error (`{"error": ...}`, `429 Too Many Requests`, a traceback), after which the answer speaks of
  no failure and no other call follows,
- arguments in words (names, places, titles) of which no half of the words is anywhere before the call.

It fires if 5 % of the results and three of them are ignored errors, or if 40 % of the arguments in words are from
nowhere, and ten of them. In a published set of 300 chats 5 % are.

## Why it is bad
The model learns to make up what the tool should have said, or what the user should have asked for. Its calls are valid
JSON and its answers sound right, so neither the loss nor a check of the format shows it.

## Example
```yaml
data:
  - copies: 4
    of:
      messages:
        - {role: user, content: "How warm is it in Oslo?"}
        - role: assistant
          content: ""
          tool_calls: [{id: a1, type: function, function: {name: weather, arguments: {city: Oslo}}}]
        - {role: tool, tool_call_id: a1, content: '{"error": "429 Too Many Requests"}'}
        - {role: assistant, content: "It is 21 degrees in Oslo."}
```

## Use instead
```yaml
data:
  - copies: 4
    of:
      messages:
        - {role: user, content: "How warm is it in Oslo?"}
        - role: assistant
          content: ""
          tool_calls: [{id: a1, type: function, function: {name: weather, arguments: {city: Oslo}}}]
        - {role: tool, tool_call_id: a1, content: '{"error": "429 Too Many Requests"}'}
        - {role: assistant, content: "I could not look it up: the service has too many requests."}
```

## Fix safety
Drop these chats, or run the calls again and write the answers after the results. Arguments and questions of different
rows need to be joined by a key.

## References
- Patil et al. 2023, Gorilla (arXiv 2305.15334), neulab/agent-data-protocol#102
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation, Message
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json

ERROR_RESULT = re.compile(
    r"\A\W{0,3}(?:status\W{1,4})?(?:error|exception|traceback|timeout|timed out|failed|failure|"
    r"http(?:/\d\S*)? [45]\d\d|[45]\d\d [A-Z]|rate limit|unauthorized|forbidden|"
    r"(?:connection|internal server) (?:error|refused))\b(?![\"'])"
    r"|[\"'](?:error|errors|exception)[\"']\s*:(?!\s*(?:null|None|false|\[\]|\"\"|''))"
    r"|[\"'](?:status|result)[\"']\s*:\s*[\"'](?:error|failed|failure)[\"']",
    re.IGNORECASE,
)
MAX_ERROR_CHARACTERS = 400
"""Of a result that is an error: longer ones hold data as well"""
SPEAKS_OF_FAILURE = re.compile(
    r"sorry|apolog|error|fail|unable|could ?n[o']t|can ?n[o']t|cannot|wasn't able|problem|issue|try again|"
    r"unfortunately|unavailable|invalid|not (?:available|found|able|possible|valid|supported)|went wrong|"
    r"does ?n[o']t|timed? ?out|limit|denied|retry|later|down\b|trouble|however|instead",
    re.IGNORECASE,
)
WORD = re.compile(r"[^\W\d_]{4,}")
STEM = 5
"""Characters of a word that are compared: endings differ"""
IGNORED, UNGROUNDED = "ignored errors", "arguments from nowhere"
# Chosen, not measured: one model's slip is rarer.
MIN_IGNORED_SHARE, MIN_IGNORED = 0.05, 3
# In Glaive's 300 chats of LLaMA-Factory 0.05 of 151 arguments in words are not in the chat before.
MIN_UNGROUNDED_SHARE, MIN_UNGROUNDED = 0.4, 10


class ToolTurnsIgnoreEachOther(DataRule):
    code = "ROW088"
    fault = Fault.TOOL_CALLS_MALFORMED
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.results = self.arguments = 0
        self.kinds: Counter[str] = Counter()
        self.cases: dict[str, list[Case]] = {}

    def add_batch(self, batch: Batch) -> None:
        """Count ignored errors and arguments from nowhere in the chats of a batch."""
        for row in batch.rows:
            if row.is_chat and any(one.get("tool_calls") for one in row.messages):
                self._count_results(batch, row)
                self._count_arguments(batch, row)

    def _count_results(self, batch: Batch, row: Conversation) -> None:
        """Count the results of a chat, and the errors among them that the next turn ignores."""
        messages = row.messages
        for index, message in enumerate(messages):
            if message.get("role") != "tool":
                continue
            self.results += 1
            result = text_of(message.get("content"))
            following = messages[index + 1] if index + 1 < len(messages) else {}
            answer = text_of(following.get("content"))
            is_answer = following.get("role") == "assistant" and not following.get("tool_calls")
            is_error = len(result) <= MAX_ERROR_CHARACTERS and ERROR_RESULT.search(result)
            if is_error and is_answer and answer and not SPEAKS_OF_FAILURE.search(answer):
                self._keep(
                    IGNORED, batch, row, index + 1, f"after {result[:50]!r}: {answer[:60]!r}"
                )

    def _count_arguments(self, batch: Batch, row: Conversation) -> None:
        """Count the arguments in words of a chat's calls, and those that nothing before them holds."""
        before = text_of((row.raw or {}).get("tools")).lower()
        for index, message in enumerate(row.messages):
            for text in _argument_texts(message):
                words = {word[:STEM].lower() for word in WORD.findall(text)}
                if not words or not text.isascii():
                    continue
                self.arguments += 1
                if 2 * sum(word in before for word in words) < len(words):
                    self._keep(UNGROUNDED, batch, row, index, f"the argument {text[:60]!r}")
            before += f"\n{text_of(message.get('content'))}".lower()

    def _keep(self, kind: str, batch: Batch, row: Conversation, index: int, text: str) -> None:
        """Count a fault, and keep the first ones."""
        self.kinds[kind] += 1
        cases = self.cases.setdefault(kind, [])
        if len(cases) < MAX_CASES:
            cases.append(case_in_message(batch, row, index, text))

    def unmet(self) -> Unmet | None:
        """Unmet where no chat calls a tool."""
        if self.results + self.arguments:
            return None
        return Unmet("it is about chats with tool calls, and no row has one")

    def measurement_if_clean(self) -> Measurement:
        """How many results and arguments do not fit their chat."""
        return make_count_measurement(
            "ignored errors and arguments from nowhere",
            self.kinds.total(),
            self.results + self.arguments,
        )

    def findings(self) -> Iterator[Finding]:
        ignored, ungrounded = self.kinds[IGNORED], self.kinds[UNGROUNDED]
        if ignored >= max(MIN_IGNORED, MIN_IGNORED_SHARE * self.results):
            yield self.finding(
                f"after {ignored:,} of {self.results:,} tool results that are an error, the answer continues as if"
                " there were a result: the model learns to make it up",
                "run these calls again and write the answers after their results, let the answers say that the tool"
                " failed, or drop these chats",
                cases=self.cases[IGNORED],
                count=ignored,
                total=self.results,
            )
        if ungrounded >= max(MIN_UNGROUNDED, MIN_UNGROUNDED_SHARE * self.arguments):
            yield self.finding(
                f"{ungrounded:,} of {self.arguments:,} arguments in words are nowhere in the chat before their call:"
                " the model learns to invent arguments",
                "join calls and questions of the same row in the script that makes the rows, and drop calls whose"
                " arguments the user did not give",
                cases=self.cases[UNGROUNDED],
                count=ungrounded,
                total=self.arguments,
            )


def _argument_texts(message: Message) -> Iterator[str]:
    """The texts among the arguments of a turn's calls."""
    for call in message.get("tool_calls") or ():
        function = call.get("function", call) if isinstance(call, dict) else {}
        arguments: Any = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, str):
            try:
                arguments = parse_json(arguments, ROW)
            except ValueError:
                continue
        if isinstance(arguments, dict):
            yield from (value for value in arguments.values() if isinstance(value, str))
