"""Every training row is padded to a fixed, long length.

## What it does
Traces, in a script that trains, each call that pads to a fixed length (`padding="max_length"`, `pad_to_max_length`, a
collator, hand-written padding as in `[pad] * n`) to that length, through functions, classes and settings. It reports

- a length of 2,048 tokens or more,
- a call without a length: the tokenizer's own limit is used then (131,072 tokens for many current models),
- any length, if the data files are next to the script and all rows are certainly shorter than a quarter of it.

It does not report cases where shapes must be fixed: compiled models, TPUs.

## Why it is bad
Memory and time of a step grow with the padded length. Chats and instructions typically have a few hundred tokens:
padded to 8,192, a row takes ten times the memory and time, nearly all of it for padding, or the run is out of memory.

## Example
```python
from transformers import AutoTokenizer, Trainer

tok = AutoTokenizer.from_pretrained("model")

def encode(batch):
    return tok(batch["text"], truncation=True, padding="max_length", max_length=8192)

trainer = Trainer(model="model", train_dataset=rows.map(encode))
```

## Use instead
```python
from transformers import AutoTokenizer, Trainer

tok = AutoTokenizer.from_pretrained("model")

def encode(batch):
    return tok(batch["text"], truncation=True, max_length=8192)

trainer = Trainer(model="model", train_dataset=rows.map(encode))
```

## Fix safety
The loss stays the same. The collator pads to the longest row of each batch; `train_sampling_strategy="group_by_length"`
(`group_by_length=True` before transformers 5) reduces the padding further. Compiled models and TPUs may need one length
for all.

## References
- https://huggingface.co/docs/transformers/pad_truncation
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.training_rows_padded_to_fixed_length import (
    FixedPadding,
    estimate_median_and_longest_tokens,
    fixed_paddings,
)
from truetune.source.parsed_source_file import Module

MIN_LENGTH = 2048
"""Four times the longest rows of the usual instruction data sets (Alpaca, Dolly: 99 % are below 512 tokens)"""
MIN_TIMES_ROWS = 4
"""Times the longest row: three of four tokens are then pads even in the longest"""
NEEDS_ONE_LENGTH = re.compile(
    r"torch_xla|\b(?:tpu|TPU)\b|torch\.compile|torch_compile|static_cache"
)
"""Where one length for all is faster than many"""
INSTEAD = (
    "remove the padding here, and let the collator pad to the longest row of a batch (DataCollatorForSeq2Seq if the"
    " rows have labels, else DataCollatorWithPadding)"
)


def _possible_padding_calls(module: Module) -> Iterator[ast.AST]:
    """Calls that may pad, or are given a length."""
    for call in module.all_calls:
        if call.keywords.keys() & {"max_length", "padding", "pad_to_max_length"}:
            yield call.node


class RowsPaddedToAFixedLength(SourceRule):
    code = "SRC101"
    fault = Fault.BATCHES_MOSTLY_PADDING
    severity = "warning"
    looks_at = CodePlaces("calls that pad, or have a max_length", _possible_padding_calls)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if NEEDS_ONE_LENGTH.search(module.text):
            return
        for padding in fixed_paddings(module):
            message = _cost_message(padding)
            if message:
                yield self.finding(message, INSTEAD, cases=[case_of_node(module, padding.node)])


def _cost_message(padding: FixedPadding) -> str:
    """The finding's message: what a padding costs; empty where it costs little, or it is not known
    how much.
    """
    length = padding.length
    rows = _row_lengths_in_words(padding)
    if length is None:
        return (
            "rows are padded to max_length, but none is set: each row takes the memory and time of the tokenizer's"
            f" own limit, 32,768 or 131,072 tokens for many models{rows}"
        )
    if length >= MIN_LENGTH or rows:
        return f"rows are padded to a fixed length: each takes the memory and time of {length:,} tokens{rows}"
    return ""


def _row_lengths_in_words(padding: FixedPadding) -> str:
    """How long the rows are that are padded; empty where that is not known, or pads are few."""
    if padding.rows is None:
        return ""
    median, longest = estimate_median_and_longest_tokens(padding.rows)
    if padding.length is not None and padding.length < MIN_TIMES_ROWS * longest:
        return ""
    if padding.length is None:
        return f"; those of {padding.rows.source} have about {median:,} (the longest {longest:,})"
    pads = 1 - median / padding.length
    return (
        f"; those of {padding.rows.source} have about {median:,} (the longest {longest:,}), so that about"
        f" {pads:.0%} of all tokens are padding".replace("%", " %")
    )
