"""A prompt or a stored row is changed in place for each row, and keeps what earlier rows added.

## What it does
Traces each `append`, `insert`, `extend` and `+=` back to the object that it changes. It fires if a list of messages, or
a text, is created once (at the top of the file, before the loop over the rows, as a parameter's default, in a
constructor), grows with each row, and is passed to a template or a model. It also fires if `__getitem__` of a data set
changes a row that the data set keeps. It does not report copies, a list that is shortened again, chats with a user, and
the turns of one dialogue with its replies.

## Why it is bad
The prompt of the second row contains the first row's question, that of the hundredth 99 of them: scores fall along the
file, and time and memory rise. A stored row gets one more system message in every epoch.

## Example
```python
import json

SHOTS = [{"role": "system", "content": "Answer with one word."}]

def ask(client, question):
    messages = SHOTS
    messages.append({"role": "user", "content": question})
    return client.chat.completions.create(model="tuned", messages=messages)

rows = [json.loads(line) for line in open("test.jsonl")]
answers = [ask(client, row["question"]) for row in rows]
```

## Use instead
```python
import json

SHOTS = [{"role": "system", "content": "Answer with one word."}]

def ask(client, question):
    messages = [*SHOTS, {"role": "user", "content": question}]
    return client.chat.completions.create(model="tuned", messages=messages)

rows = [json.loads(line) for line in open("test.jsonl")]
answers = [ask(client, row["question"]) for row in rows]
```

## Fix safety
There is no automatic fix. Answers to the grown prompts must be generated again.

## References
- GenAI-Security-Project/finbot-ctf#67
- NousResearch/hermes-agent#229
- 567-labs/instructor#2428
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.prompts_and_rows_changed_in_place import (
    in_place_extensions_with_object,
    prompts_or_rows_growing_per_row,
)
from truetune.source.parsed_source_file import Module


def _in_place_changes(module: Module) -> Iterator[ast.AST]:
    """Places that change an object in place."""
    yield from (change for change, _ in in_place_extensions_with_object(module))


class PromptGrowsWithEachRow(SourceRule):
    code = "SRC521"
    fault = Fault.ROWS_MIXED_UP_BY_CODE
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = CodePlaces("lists and rows that are changed in place", _in_place_changes)

    def findings(self) -> Iterator[Finding]:
        """Findings on prompts and stored rows that each row makes longer."""
        module = self.subject
        for growing_object in prompts_or_rows_growing_per_row(module):
            if growing_object.form == "prompt":
                message = "the prompt is created once and grows with each row: it contains all earlier rows"
                remedy = "create a new list for each row: messages = [*shots, message]; copy.deepcopy(shots) works too"
            else:
                message = "__getitem__ changes the row that the data set keeps: the next epoch changes it again"
                remedy = "change a copy of the row (copy.deepcopy), or build a new list ([*messages, message])"
            cases = [
                case_of_node(module, growing_object.change),
                case_of_node(module, growing_object.made),
            ]
            yield self.finding(message, remedy, cases=cases)
