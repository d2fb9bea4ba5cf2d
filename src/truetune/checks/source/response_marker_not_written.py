"""The marker that should locate the answers is not in the script's texts, which use other headers.

## What it does
For scripts that write their rows themselves, compares the marker of `DataCollatorForCompletionOnlyLM` and
`train_on_responses_only`, or one that code with labels of -100 searches for, with the texts that rows are built from,
in all files that run together. It fires if the marker is a header (`### Response:`, `Assistant:`), the texts contain
headers of that form, and none of them is the marker.

## Why it is bad
If the marker is not found, every label of the row is -100. The loss is 0.0 or NaN from the first step. Code that keeps
such rows unmasked trains on the prompt, too.

## Example
```python
from trl import SFTTrainer
from unsloth.chat_templates import train_on_responses_only

def write(row):
    return f"### Question:\\n{row['question']}\\n\\n### Answer:\\n{row['answer']}" + tokenizer.eos_token

trainer = SFTTrainer(model, train_dataset=rows, formatting_func=write)
trainer = train_on_responses_only(trainer, instruction_part="### Question:", response_part="### Response:")
```

## Use instead
```python
from trl import SFTTrainer
from unsloth.chat_templates import train_on_responses_only

def write(row):
    return f"### Question:\\n{row['question']}\\n\\n### Answer:\\n{row['answer']}" + tokenizer.eos_token

trainer = SFTTrainer(model, train_dataset=rows, formatting_func=write)
trainer = train_on_responses_only(trainer, instruction_part="### Question:", response_part="### Answer:")
```

## Fix safety
There is no automatic fix: look at the text to see which header comes before the answer. More tokens get labels, so the
loss changes.

## References
- huggingface/trl#588, huggingface/trl#1185
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.response_markers import (
    ResponseMarker,
    markers_searched_to_set_labels,
)
from truetune.source.parsed_source_file import Module
from truetune.source.response_marker_masking import (
    TRL_COMPLETION_COLLATOR,
    UNSLOTH_RESPONSE_MASKING,
)

HASHED = re.compile(r"#{2,4} ?[A-Za-z][A-Za-z ]{1,30}:?")
PLAIN = re.compile(r"[A-Z][A-Za-z]{2,20}:")
HASHED_LINE = re.compile(r"^[ \t]*(#{2,4} ?[A-Za-z][A-Za-z ]{1,30}:?)", re.M)
PLAIN_LINE = re.compile(r"^[ \t]*([A-Z][A-Za-z]{2,20}:)", re.M)
HASHED_FROM_VALUE = re.compile(r"#{2,4}[ \t]*[{%]")
"""A header whose words are put in: `### {role}:`"""
PLAIN_FROM_VALUE = re.compile(r"^[ \t]*(?:\{\w*\}|%s)[ \t]*:", re.M)
FILLED = re.compile(r"\{\w*\}|%s")
TEMPLATES_OF_OTHERS = re.compile(
    r"(?:apply|get)_chat_template|\.chat_template\b|from_template|Template\("
)
WRITES_ROWS = ("formatting_func", ".map(", "tokenizer(", "tok(", "encode(")


QUESTION = re.compile(r"question|query|user|human|instruction|input|customer|prompt|problem", re.I)
ANSWER = re.compile(
    r"answer|response|assistant|\bbot\b|output|agent|reply|solution|completion", re.I
)


class RowTemplate(NamedTuple):
    """A text that the values of a row are put into."""

    node: ast.AST
    text: str
    """`{}` stands for each value"""


def _response_markers_written_as_headers(module: Module) -> Iterator[ResponseMarker]:
    """The markers that are headers, written as people write them."""
    for marker in markers_searched_to_set_labels(module):
        text = marker.text.strip()
        is_header = HASHED.fullmatch(text) or PLAIN.fullmatch(text)
        if is_header and _is_marker_used_for_labels(module, marker.place):
            yield marker


def _is_marker_used_for_labels(module: Module, place: ast.AST) -> bool:
    """Is a marker given to what makes labels: a collator of a library, or code that writes -100?"""
    if isinstance(place, ast.Call) and module.flow.call(place).named(
        *UNSLOTH_RESPONSE_MASKING, TRL_COMPLETION_COLLATOR
    ):
        return True
    owner = next((one for one in module.parents(place) if isinstance(one, ast.ClassDef)), None)
    around = owner if owner is not None else module.function_around(place)
    return around is not None and "-100" in ast.unparse(around)


class ResponseMarkerNotWritten(SourceRule):
    code = "SRC391"
    fault = Fault.ANSWER_MARKER_NOT_FOUND
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces(
        "markers of answers that are headers", _response_markers_written_as_headers
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(
            TEMPLATES_OF_OTHERS.search(part.text) for part in module.self_and_files_run_together
        ):
            return
        if not module.mentions(*WRITES_ROWS):
            return
        markers = list(_response_markers_written_as_headers(module))
        given = {marker.text for marker in markers}
        texts = [one for one in _row_templates(module) if one.text not in given]
        for marker in markers:
            headers = _other_headers_of_marker_form(marker.text.strip(), texts)
            if headers:
                answer, place = next(one for one in headers.items() if ANSWER.search(one[0]))
                yield self.finding(
                    f"the marker {marker.text!r} is not in the texts that the script writes; their headers are"
                    f" {', '.join(map(repr, headers))}: no answer is found, and no token has a label",
                    f"set the marker to {answer!r}, the header before the answer in this text",
                    cases=[case_of_node(module, marker.place), case_of_node(module, place)],
                )
                return


def _row_templates(module: Module) -> Iterator[RowTemplate]:
    """The texts of the files that values are put into: f-strings, texts with `{}` or `%s`, sums of texts."""
    for part in module.self_and_files_run_together:
        for node in part.nodes(ast.JoinedStr, ast.BinOp, ast.Constant):
            parent = next(iter(part.parents(node)), None)
            if isinstance(parent, ast.JoinedStr | ast.BinOp):
                continue  # a part of a larger text
            if isinstance(node, ast.Constant):
                if isinstance(node.value, str) and FILLED.search(node.value):
                    yield RowTemplate(node, node.value)
            else:
                text = "".join(_pieces_of_text(part, node))
                if text.strip("{}"):
                    yield RowTemplate(node, text)


def _pieces_of_text(module: Module, node: ast.AST) -> Iterator[str]:
    """The pieces of a text in their order, `{}` for each value that is not known."""
    # A stack instead of recursion: sums of a thousand texts are as deep.
    waiting: list[ast.AST] = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.JoinedStr):
            waiting += reversed(part.values)
        elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
            waiting += (part.right, part.left)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        else:
            # `{RESPONSE}`, a header under a name.
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            known = module.flow.value(inner) if isinstance(inner, ast.expr) else None
            yield known if isinstance(known, str) else "{}"


def _other_headers_of_marker_form(marker: str, texts: list[RowTemplate]) -> dict[str, ast.AST]:
    """The headers of the marker's form, each with its text; none where the marker is written, or may be."""
    is_hashed = marker.startswith("#")
    line, from_value = (
        (HASHED_LINE, HASHED_FROM_VALUE) if is_hashed else (PLAIN_LINE, PLAIN_FROM_VALUE)
    )
    headers: dict[str, ast.AST] = {}
    for one in texts:
        if marker in one.text or from_value.search(one.text):
            return {}
        found = [match[1].strip() for match in line.finditer(one.text)]
        # A text of a question with its answer: what is printed has headers too.
        if any(map(QUESTION.search, found)) and any(map(ANSWER.search, found)):
            headers |= dict.fromkeys(found, one.node)
    return headers
