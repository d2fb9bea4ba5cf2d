"""Tool call arguments are JSON inside a JSON string.

## What it does
Looks at tool calls whose `arguments` are a string (as in OpenAI's API), and checks whether the template writes that
string as a JSON string, with quotes and backslashes.

## Why it is bad
The model learns to write `"arguments": "{\\"city\\": ...}"`. Parsers at serving time expect an object, and fail.

## Example
```yaml
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - role: assistant
        content: ""
        tool_calls: [{type: function, function: {name: hours, arguments: '{"day": "Monday"}'}}]
```

## Use instead
```yaml
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - role: assistant
        content: ""
        tool_calls: [{type: function, function: {name: hours, arguments: {day: Monday}}}]
```

## Fix safety
`json.loads` on each `arguments` string is safe; templates that want a string handle objects too.

## References
- oumi-ai/oumi#2599, sgl-project/sglang#12123
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_character
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.render.traced_json import json_body


class ToolArgumentsDoubleEncoded(DataRule):
    code = "ROW010"
    fault = Fault.TOOL_CALLS_MALFORMED
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.calls, self.rows = 0, set[int]()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the tool calls of a batch, and its rows whose arguments are written as a string in JSON."""
        seen = {row.origin.row: row for row, _ in batch.examples}
        self.calls += sum(1 for row in seen.values() for _ in _call_arguments(row))
        for i, (row, rendering) in enumerate(batch.examples):
            for turn, arguments in _call_arguments(row):
                if not isinstance(arguments, str) or '"' not in arguments:
                    continue
                # Many formats hold arguments as a string, and most templates write it as it is.
                # Only where the text holds it quoted once more is it a string in JSON.
                quoted = f'"{json_body(arguments, False)}"'
                if quoted in rendering.text and row.origin.row not in self.rows:
                    self.rows.add(row.origin.row)
                    if len(self.cases) < MAX_CASES:
                        at = rendering.text.index(quoted)
                        self.cases.append(
                            case_at_character(batch, i, at, f"written as {quoted[:70]}", turn)
                        )

    def unmet(self) -> Unmet | None:
        """Unmet without tool calls."""
        return None if self.calls else Unmet("it is about tool calls, and no row has one")

    def measurement_if_clean(self) -> Measurement:
        """How many tool calls have arguments that the template writes as a string in JSON."""
        return make_count_measurement(
            "tool calls whose arguments the template writes as a string in JSON",
            len(self.rows),
            self.calls,
        )

    def findings(self) -> Iterator[Finding]:
        if self.rows:
            yield self.finding(
                f"{len(self.rows):,} rows have tool calls whose arguments the template writes as JSON inside a"
                " string; parsers that expect an object fail on what the model learns",
                "in the data, replace each `arguments` string by the object: json.loads(arguments)",
                cases=self.cases,
                count=len(self.rows),
            )


def _call_arguments(row: Conversation) -> Iterator[tuple[int, Any]]:
    """(message, arguments) of each tool call; calls of both shapes, with `function` and without."""
    for i, message in enumerate(row.messages):
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                function = call.get("function", call)
                yield i, function.get("arguments") if isinstance(function, dict) else None
