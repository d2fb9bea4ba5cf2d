"""Every training row is padded to a fixed, long length.

## What it does
Looks for a tokenizer that is called with `padding="max_length"` and a plain `max_length` of 2,048 or more, in a script
that trains.

## Why it is bad
Memory and time of a step follow the padded length. Chats and instructions have some hundred tokens: padded to 8,192,
a row takes ten times the memory and time, or the run is out of memory, and all of it is padding.

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
The collator pads to the longest row of each batch; `train_sampling_strategy="group_by_length"` (`group_by_length=True`
before transformers 5) makes that less. Compiled models and TPUs may need one length for all.

## References
- https://huggingface.co/docs/transformers/pad_truncation
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

MIN_LENGTH = 2048
"""Four times the longest rows of the usual instruction data sets (Alpaca, Dolly: 99 % are below 512 tokens)"""
NEEDS_ONE_LENGTH = re.compile(
    r"torch_xla|\b(?:tpu|TPU)\b|torch\.compile|torch_compile|static_cache"
)
"""Where one length for all is faster than many"""


def _padding_calls(module: Module) -> Iterator[Call]:
    """Calls that pad to a length of their own."""
    for call in _length_limited_calls(module):
        if module.flow.value(call.keywords.get("padding")) == "max_length":
            yield call


def _length_limited_calls(module: Module) -> Iterator[Call]:
    """Calls that are given a length for rows."""
    return (call for call in module.all_calls if "max_length" in call.keywords)


class RowsPaddedToAFixedLength(SourceRule):
    code = "SRC101"
    severity = "warning"
    looks_at = CodePlaces("calls with a max_length", _length_limited_calls)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        trains = any(module.calls("transformers.*Trainer", "trl.*Trainer")) or any(
            module.methods("backward")
        )
        if not trains or NEEDS_ONE_LENGTH.search(module.text):
            return
        for call in _padding_calls(module):
            length = module.flow.value(call.keywords.get("max_length"))
            # type() and not isinstance: True is an int.
            if type(length) is int and length >= MIN_LENGTH:
                yield self.finding(
                    f'padding="max_length": each row takes the memory and time of {length:,} tokens',
                    "leave padding out here, and let the collator pad to the longest row of a batch"
                    " (DataCollatorForSeq2Seq, DataCollatorWithPadding)",
                    cases=[case_at(module, call.node)],
                )
