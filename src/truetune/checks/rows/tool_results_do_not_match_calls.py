"""Tool results are missing, or are in another order than the calls.

## What it does
Follows each tool call of a chat to its result. It counts chats in which

- an answer in words directly follows a call, without a result in between,
- results have a `tool_call_id` that no call has,
- the results of several calls are in another order than the calls, if the chat template does not write the ids.

It is an error from 20 % of the chats with calls, a warning from 5 %, and an info below.

## Why it is bad
An answer that uses a missing result teaches the model to make results up. Most templates write calls and results one
after another, without ids. The second result is then read as that of the second call, and the model learns from the
wrong one.

## Example
```yaml
data:
  - messages:
      - {role: user, content: "Is it open on Monday?"}
      - role: assistant
        content: ""
        tool_calls: [{id: a1, type: function, function: {name: hours, arguments: {day: Monday}}}]
      - {role: assistant, content: "Yes, from nine to four."}
```

## Use instead
```yaml
data:
  - messages:
      - {role: user, content: "Is it open on Monday?"}
      - role: assistant
        content: ""
        tool_calls: [{id: a1, type: function, function: {name: hours, arguments: {day: Monday}}}]
      - {role: tool, tool_call_id: a1, content: "9:00 to 16:00"}
      - {role: assistant, content: "Yes, from nine to four."}
```

## Fix safety
Sorting results into the order of their calls is safe. A call at the end of a chat needs no result.

## References
- MiaAI-Lab/Qwen3.8-27B-DFlash2-EXL3-5.0bpw#10
- JustVugg/colibri#118
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation, Message
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of
from truetune.settings.run_spec import Severity

MISSING = "an answer follows a call without its result"
UNKNOWN_ID = "a result has an id that no call has"
OTHER_ORDER = "results are in another order than their calls"
RESULT_ROLES = ("tool", "function", "observation", "ipython", "tool_response")
# Chosen, not measured: a few chats of many may be cut, or written so on purpose.
ERROR_SHARE, WARNING_SHARE, MIN_CHATS = 0.2, 0.05, 2


class ResultFault(NamedTuple):
    """What is wrong with the results of a chat, and at which message."""

    kind: str
    turn: int


class ToolResultsDoNotMatchCalls(DataRule):
    code = "ROW073"
    fault = Fault.TOOL_CALLS_MALFORMED
    symptoms = ("nothing-is-learned",)
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.chats = self.odd_chats = 0
        self.kinds: Counter[str] = Counter()
        self.cases: list[Case] = []
        # Without a template nothing says that ids are written, and most templates do not.
        template = setup.probes.template
        self.writes_ids = template is not None and "tool_call_id" in template.source

    def add_batch(self, batch: Batch) -> None:
        """Count the chats of a batch whose results do not match the calls."""
        for row in batch.rows:
            if not any(message.get("tool_calls") for message in row.messages):
                continue
            self.chats += 1
            fault = self._first_fault(row)
            if fault is None:
                continue
            self.odd_chats += 1
            self.kinds[fault.kind] += 1
            if len(self.cases) < MAX_CASES:
                self.cases.append(case_in_message(batch, row, fault.turn, fault.kind))

    def _first_fault(self, row: Conversation) -> ResultFault | None:
        """The first fault of a chat."""
        # Calls that are made at once may be in one message, or in several in a row.
        calls_by_message: list[list[str]] = []
        results: list[str] = []
        is_waiting = False
        for turn, message in enumerate(row.messages):
            role = message.get("role")
            if role == "assistant":
                if is_waiting and not message.get("tool_calls") and text_of(message.get("content")):
                    return ResultFault(MISSING, turn)
                if not is_waiting:
                    calls_by_message, results = [], []
                calls_by_message.append(_ids_of_calls(message))
                is_waiting = bool(message.get("tool_calls"))
            elif role in RESULT_ROLES:
                is_waiting = False
                results.append(str(message.get("tool_call_id") or ""))
                kind = self._fault_of_ids(calls_by_message, results)
                if kind:
                    return ResultFault(kind, turn)
            else:
                # Results may be in a turn of the user.
                calls_by_message, results, is_waiting = [], [], False
        return None

    def _fault_of_ids(
        self, calls_by_message: Sequence[Sequence[str]], results: Sequence[str]
    ) -> str:
        """What is wrong with the ids of the results so far; empty where nothing is, or ids are lacking."""
        calls = [call for calls in calls_by_message for call in calls]
        if not calls or not all((*calls, *results)) or len(set(calls)) < len(calls):
            return ""
        if results[-1] not in calls:
            return UNKNOWN_ID
        if self.writes_ids or _are_results_in_order_of_calls(calls_by_message, results):
            return ""
        return OTHER_ORDER

    def unmet(self) -> Unmet | None:
        """Unmet without chats with tool calls."""
        return None if self.chats else Unmet("it is about tool calls, and no chat has one")

    def measurement_if_clean(self) -> Measurement:
        """How many chats have results that do not match the calls."""
        return make_count_measurement(
            "chats with tool calls whose results are missing or misplaced",
            self.odd_chats,
            self.chats,
        )

    def findings(self) -> Iterator[Finding]:
        share = self.odd_chats / max(1, self.chats)
        is_all = 0 < self.odd_chats == self.chats
        if self.odd_chats < MIN_CHATS and not is_all:
            return
        severity: Severity = "warning" if share >= WARNING_SHARE else "info"
        kinds = ", ".join(f"{kind} ({count:,})" for kind, count in self.kinds.most_common())
        yield self.finding(
            f"in {self.odd_chats:,} of {self.chats:,} chats with tool calls, the results do not match the calls:"
            f" {kinds}",
            _remedy_for(self.kinds.most_common(1)[0][0]),
            severity="error" if share >= ERROR_SHARE else severity,
            cases=self.cases,
            count=self.odd_chats,
            total=self.chats,
        )


def _are_results_in_order_of_calls(
    calls_by_message: Sequence[Sequence[str]], results: Sequence[str]
) -> bool:
    """Do the results have the order of the calls, each message's from its first call on?"""
    calls = [call for calls in calls_by_message for call in calls]
    places = [calls.index(result) for result in results if result in calls]
    return places == sorted(places) and all(
        _are_results_of_first_calls(one, results) for one in calls_by_message
    )


def _are_results_of_first_calls(calls: Sequence[str], results: Sequence[str]) -> bool:
    """Are the results of these calls those of the first ones, in their order?"""
    own = [result for result in results if result in calls]
    return own == list(calls[: len(own)])


def _remedy_for(kind: str) -> str:
    """What to do about the most frequent fault."""
    if kind == MISSING:
        return "add the result after each call, as a message with the role `tool`"
    if kind == OTHER_ORDER:
        return "sort the results into the order of the calls, since the template does not write their ids"
    return "set each result's tool_call_id to the `id` of its call"


def _ids_of_calls(message: Message) -> list[str]:
    """The ids of the calls of a message, empty for a call without one."""
    calls = message.get("tool_calls")
    return [
        str(call.get("id") or "") if isinstance(call, dict) else ""
        for call in (calls if isinstance(calls, list) else ())
    ]
