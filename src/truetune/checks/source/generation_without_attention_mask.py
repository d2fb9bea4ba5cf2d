"""Ids are given to generate without their attention mask, although they are padded.

## What it does
Looks for `model.generate(ids)` without an attention mask, if the ids come from a tokenizer call that pads. Without
padding no mask is needed.

## Why it is bad
transformers guesses the mask from the pad token, but not if the pad token is also EOS. Then the model attends to pads
as if they were text, and short rows of a batch get other answers than they would get one at a time.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("model")
batch = tokenizer(["Hi", "How do you do?"], padding=True, return_tensors="pt")
out = model.generate(batch["input_ids"], max_new_tokens=20)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("model")
batch = tokenizer(["Hi", "How do you do?"], padding=True, return_tensors="pt")
out = model.generate(batch["input_ids"], max_new_tokens=20, attention_mask=batch["attention_mask"])
```

## Fix safety
Safe: the tokenizer made the mask together with the ids.

## References
- huggingface/open_asr_leaderboard#54, QwenLM/Qwen3#267, BAAI-DCAI/M3D#15
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.generate_call_inputs import (
    GENERATE_CALLS,
    generate_calls,
    input_ids_argument,
    tokenizer_call_of_input_ids,
)
from truetune.source.make_source_edits import set_keyword


class GenerationWithoutAttentionMask(SourceRule):
    code = "SRC040"
    fault = Fault.PADDING_CHANGES_RESULTS
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    looks_at = GENERATE_CALLS

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in generate_calls(module):
            ids = input_ids_argument(call)
            encoding = tokenizer_call_of_input_ids(module, ids) if ids is not None else None
            if (
                ids is None
                or encoding is None
                or not encoding.pads
                or not call.lacks("attention_mask")
            ):
                continue
            mask = module.text_of(ids).replace("input_ids", "attention_mask")
            yield self.finding(
                "generate gets padded ids without their attention mask: the model may treat pads as text",
                'pass attention_mask=encoding["attention_mask"] as well, or the tokenizer\'s whole result:'
                " model.generate(**encoding, ...)",
                evidence=[f"the ids come from line {module.place(encoding.call.node)[0]}"],
                cases=[case_of_node(module, call.node)],
                fix=(
                    fix_of_changes(module, set_keyword(module, call, "attention_mask", mask))
                    if encoding.direct
                    else None
                ),
            )
