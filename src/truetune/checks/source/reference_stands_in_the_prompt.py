"""The evaluation prompts with whole conversations: the prompt contains the reference answer.

## What it does
Finds `apply_chat_template(row["messages"], add_generation_prompt=True)` in a script that generates, vLLM's
`chat(row["messages"])`, and requests with these messages, if the rows in the files end with the assistant's turn. It
does not fire if the script cuts messages off (`[:-1]`, `pop`), continues the final message, or reads no reference.

## Why it is bad
The model sees the answer in its prompt and repeats it. ROUGE and exact match are near 1 for any model, even for the
untrained base.

## Example
```python
rows = [
    {"messages": [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "First."}]},
    {"messages": [{"role": "user", "content": "Two?"}, {"role": "assistant", "content": "Second."}]},
    {"messages": [{"role": "user", "content": "Three?"}, {"role": "assistant", "content": "Third."}]},
]
for row in rows:
    ids = tokenizer.apply_chat_template(row["messages"], add_generation_prompt=True, return_tensors="pt")
    answer = tokenizer.decode(model.generate(ids, max_new_tokens=64)[0, ids.shape[1]:])
    right = answer == row["messages"][-1]["content"]
```

## Use instead
```python
rows = [
    {"messages": [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "First."}]},
    {"messages": [{"role": "user", "content": "Two?"}, {"role": "assistant", "content": "Second."}]},
    {"messages": [{"role": "user", "content": "Three?"}, {"role": "assistant", "content": "Third."}]},
]
for row in rows:
    ids = tokenizer.apply_chat_template(row["messages"][:-1], add_generation_prompt=True, return_tensors="pt")
    answer = tokenizer.decode(model.generate(ids, max_new_tokens=64)[0, ids.shape[1]:])
    right = answer == row["messages"][-1]["content"]
```

## Fix safety
There is no automatic fix. Earlier scores of the script are meaningless and can't be compared with the new ones.

## References
- huggingface/transformers, docs/source/en/chat_templating.md (`add_generation_prompt`)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.scored_rows import rows_with_column_if_unambiguous
from truetune.data.answering_roles import is_answering_role
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

CUTS_MESSAGES = re.compile(
    r"\[:\s*-\s*1\s*\]|\.pop\(|\bdel\s|continue_final_message|[!=]=\s*[\"']assistant[\"']"
    r"|(?:messages|conversations?|turns|msgs)[\"'\]]*\[:"
)
"""A script that takes turns off somewhere"""
READS_LAST_TURN = re.compile(r"\[-1\]")
# Chosen, not measured: two rows are an example, and a file may end some rows with the user's turn.
MIN_ROWS, MOST = 3, 0.8


def _model_calls_and_messages(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """The calls that put messages to a model, and these messages."""
    yield from _prompt_renderings_and_messages(module)
    for call in module.methods("create"):
        messages_argument = call.keywords.get("messages")
        if messages_argument is not None and "completions" in ast.unparse(call.node.func):
            yield call, messages_argument
    for call in module.methods("chat"):
        engine = module.flow.producing_call(call.receiver)
        messages_argument = call.argument(0, "messages")
        if messages_argument is not None and engine is not None and engine.named("vllm.LLM"):
            yield call, messages_argument


def _prompt_renderings_and_messages(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """The prompts that a script renders by a chat template, where it generates."""
    if not any(module.methods("generate")):
        return
    for call in module.methods("apply_chat_template"):
        conversation_argument = call.argument(0, "conversation")
        opens = module.flow.value(call.keywords.get("add_generation_prompt")) is True
        if conversation_argument is not None and opens:
            yield call, conversation_argument


class ReferenceStandsInThePrompt(SourceRule):
    code = "SRC304"
    fault = Fault.ANSWER_READABLE_FROM_PROMPT
    symptoms = ("odd-metrics",)
    severity = "error"
    looks_at = CodePlaces(
        "prompts made of messages",
        lambda module: (call.node for call, _ in _model_calls_and_messages(module)),
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        # A script that scores reads the reference: the last turn, or a column beside the messages.
        if CUTS_MESSAGES.search(module.text) or not READS_LAST_TURN.search(module.text):
            return
        for call, given in _model_calls_and_messages(module):
            column = _column_of_messages(module, given)
            rows = rows_with_column_if_unambiguous(module, column) if column else None
            ended = [row for row in rows.rows if _ends_with_answer(row[column])] if rows else []
            if rows is None or len(ended) < MIN_ROWS or len(ended) < MOST * len(rows.rows):
                continue
            yield self.finding(
                f"the prompt contains the reference: `{column}` of {len(ended)} of {len(rows.rows)} rows of"
                f" {rows.source} ends with the assistant's answer, so the model can copy it",
                f'pass row["{column}"][:-1] instead, so that the prompt ends with the user\'s turn',
                cases=[case_of_node(module, call.node)],
            )
            return


def _column_of_messages(module: Module, expression: ast.expr) -> str:
    """The column whose messages an expression is: `row["messages"]`, or a list of these; empty for anything else."""
    nodes = [expression, *(origin.node for origin in module.flow.origins(expression))]
    for node in nodes:
        inner = node.elt if isinstance(node, ast.ListComp) else node
        if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Constant):
            if isinstance(inner.slice.value, str):
                return inner.slice.value
    return ""


def _ends_with_answer(messages: Any) -> bool:
    """Is the last of some messages the assistant's?"""
    last = messages[-1] if isinstance(messages, list) and len(messages) > 1 else None
    if not isinstance(last, Mapping):
        return False
    return is_answering_role(last.get("role") or last.get("from"))
