"""Prompts are padded to a fixed length before generation, so that nearly all of the work is on padding.

## What it does
Traces the input of `generate` back to a tokenizer call with `padding="max_length"`, also through a loader's collator.
It fires for a `max_length` of 1,024 tokens or more, or if none is set, which means the tokenizer's own limit. It does
not fire if shapes must be fixed: compiled models, static caches, TPUs and other accelerators with compiled graphs.

## Why it is bad
Each prompt costs as much as one of the full length, in attention and in the key-value cache. Prompts of 20 tokens
padded to 8,192 need 400 times the prefill work, and an answer takes seconds instead of a fraction of one.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("model")
batch = tokenizer(["Hi", "How do you do?"], padding="max_length", max_length=4096, return_tensors="pt")
out = model.generate(**batch, max_new_tokens=20)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("model")
batch = tokenizer(["Hi", "How do you do?"], padding=True, max_length=4096, return_tensors="pt")
out = model.generate(**batch, max_new_tokens=20)
```

## Fix safety
Safe: answers are the same up to rounding. `padding=True` pads to the longest prompt of the batch.

## References
- QwenLM/Qwen3-Embedding#78, huggingface/setfit#360
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.generate_call_inputs import (
    GENERATE_CALLS,
    encoding_calls_of_dictionary,
    generate_calls,
    input_ids_argument,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.make_source_edits import set_keyword
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import variable_of_entry

# Chosen, not measured: what pads cost depends on the GPU. At half, most scripts of tutorials are told; at double,
# 1,024 pads a row are passed over.
LONG = 1_024
"""Tokens; most prompts of chats and of benchmarks stay below, and at this length pads cost a GPU some tens of
milliseconds a row"""
FIXED_SHAPES = (
    "torch.compile",
    ".compile(",
    "cache_implementation",
    "StaticCache",
    "xla",
    "neuron",
    "onnx",
    "openvino",
)
"""Signs that shapes must not change from batch to batch"""


class PromptsPaddedToAFixedLength(SourceRule):
    code = "SRC030"
    fault = Fault.BATCHES_MOSTLY_PADDING
    symptoms = ("out-of-memory", "slow-generation")
    severity = "warning"
    looks_at = GENERATE_CALLS

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if module.mentions(*FIXED_SHAPES):
            return
        for call in generate_calls(module):
            batch = next(
                (
                    one
                    for one in _tokenizer_calls_of_prompts(module, call)
                    if _pads_to_fixed_length(module, one)
                ),
                None,
            )
            if batch is None:
                continue
            length = module.flow.value(batch.keywords.get("max_length"))
            to = f"{length:,} tokens" if isinstance(length, int) else "the tokenizer's limit"
            yield self.finding(
                f"every prompt is padded to {to} before generation: a short prompt costs as much as one of this length",
                'set padding=True instead of padding="max_length": it pads to the longest prompt of the batch',
                cases=[case_of_node(module, batch.node), case_of_node(module, call.node)],
                fix=fix_of_changes(module, set_keyword(module, batch, "padding", "True")),
            )


def _tokenizer_calls_of_prompts(module: Module, call: Call) -> Iterator[Call]:
    """The calls of a tokenizer that this `generate` gets its prompts from."""
    for keyword in call.node.keywords:
        if keyword.arg is None:
            yield from encoding_calls_of_dictionary(module, keyword.value)
    ids = input_ids_argument(call)
    if ids is not None:
        inner = variable_of_entry(ids)
        yield from encoding_calls_of_dictionary(module, inner)


def _pads_to_fixed_length(module: Module, batch: Call) -> bool:
    """Does the tokenizer's call pad to a length that is long, or the tokenizer's own?"""
    if module.flow.value(batch.keywords.get("padding")) != "max_length":
        return False
    length = module.flow.value(batch.keywords.get("max_length"))
    # Unknown or left out: the tokenizer's own limit, which is thousands of tokens for models of today.
    return length in (UNKNOWN, None) or (isinstance(length, int) and length >= LONG)
