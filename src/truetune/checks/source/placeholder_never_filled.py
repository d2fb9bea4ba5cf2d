"""A prompt reaches the model with a placeholder that nothing fills in.

## What it does
Traces the texts in a script to the code that trains on them or sends them to a model: chat templates, tokenizers,
trainers, clients of servers, rows that are written to a file. It fires if a text arrives with `{name}` in it, and
`name` is a variable in scope or a column that the file reads: the call of `format`, or the `f` before the text, is
missing. It is an error if nothing else in the prompt differs from row to row, else a warning. It does not report
escaped braces (`{{name}}`), LaTeX, names of answers, and texts that are formatted on the way.

## Why it is bad
The model sees the braces instead of the text. If the whole prompt is that text, all prompts are alike: training can
only learn how frequent each answer is, the loss stops at the entropy of the answers, and every question gets the same
answer.

## Example
```python
from datasets import load_dataset
from transformers import AutoTokenizer, Trainer

PROMPT = "Which team is this message for?\\n\\n{text}"
tok = AutoTokenizer.from_pretrained("model")


def encode(row):
    text = row["text"].strip()
    prompt = tok.apply_chat_template([{"role": "user", "content": PROMPT}], return_dict=False)
    answer = tok(row["team"], add_special_tokens=False)["input_ids"]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


rows = load_dataset("csv", data_files="mails.csv", split="train").map(encode)
Trainer(model="model", train_dataset=rows).train()
```

## Use instead
```python
from datasets import load_dataset
from transformers import AutoTokenizer, Trainer

PROMPT = "Which team is this message for?\\n\\n{text}"
tok = AutoTokenizer.from_pretrained("model")


def encode(row):
    text = row["text"].strip()
    prompt = tok.apply_chat_template([{"role": "user", "content": PROMPT.format(text=text)}], return_dict=False)
    answer = tok(row["team"], add_special_tokens=False)["input_ids"]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


rows = load_dataset("csv", data_files="mails.csv", split="train").map(encode)
Trainer(model="model", train_dataset=rows).train()
```

## Fix safety
There is no automatic fix: other braces in the text (JSON) must be doubled for `format`; otherwise use `replace`. The
prompts change, so train again.

## References
- Python documentation, `str.format` and formatted string literals
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.unfilled_placeholders import (
    PLACEHOLDER,
    unfilled_placeholders,
)
from truetune.source.parsed_source_file import Module


def _texts_with_placeholders(module: Module) -> Iterator[ast.AST]:
    """Texts with a name in braces."""
    for text in module.nodes(ast.Constant):
        if isinstance(text.value, str) and "{" in text.value and PLACEHOLDER.search(text.value):
            yield text


class PlaceholderNeverFilled(SourceRule):
    code = "SRC262"
    fault = Fault.PLACEHOLDERS_NOT_FILLED
    symptoms = ("loss-does-not-fall", "nothing-is-learned", "garbage-output", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("texts with a placeholder", _texts_with_placeholders)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for unfilled_placeholder in unfilled_placeholders(module):
            name = unfilled_placeholder.placeholder[1:-1]
            effect = (
                "all prompts are the same text, whatever the row"
                if unfilled_placeholder.is_whole
                else "the model sees the braces instead of the value"
            )
            fill = (
                f"call .format({name}={name}) on the text"
                if name.isidentifier()
                else "put an f in front of the text"
            )
            place = case_of_node(unfilled_placeholder.use.home, unfilled_placeholder.use.node)
            yield self.finding(
                f"the placeholder {unfilled_placeholder.placeholder} reaches the model as it is, since nothing fills"
                f" it in: {effect}",
                f"{fill}; then build the rows again, and use the same prompt at inference",
                severity=None if unfilled_placeholder.is_whole else "warning",
                cases=[case_of_node(module, unfilled_placeholder.text), place],
            )
