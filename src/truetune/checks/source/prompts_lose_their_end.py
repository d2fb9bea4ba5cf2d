"""Prompts are truncated on the right before generation: long ones lose the question and the generation prompt.

## What it does
Traces the input of `generate` back to a tokenizer call with `truncation=True` and a `max_length` up to 2,048, if
nothing sets the truncation side to the left. Only the data say whether a prompt is that long.

## Why it is bad
A tokenizer cuts at the end by default. A long prompt loses what comes last: the question after the document, and the
tokens that start the answer. The model then continues the document, and only long rows score badly.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("model")
batch = tokenizer(prompts, padding=True, truncation=True, max_length=512, return_tensors="pt")
out = model.generate(**batch, max_new_tokens=32)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left", truncation_side="left")
model = AutoModelForCausalLM.from_pretrained("model")
batch = tokenizer(prompts, padding=True, truncation=True, max_length=512, return_tensors="pt")
out = model.generate(**batch, max_new_tokens=32)
```

## Fix safety
If you cut on the left, a prompt loses its system message. It is better to shorten the document before the prompt is
built, so that question and generation prompt stay, or to raise `max_length`.

## References
- huggingface/transformers `PreTrainedTokenizerBase.truncation_side` (default right)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import (
    GENERATE_CALLS,
    encoding_calls_of_dictionary,
    generate_calls,
    has_encoder_models_only,
    input_ids_argument,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import variable_of_entry

# Chosen, not measured. At half, long questions are cut without a word; at double, models with such a context are told
# of a limit that is theirs.
LONG = 2_048
"""Tokens; prompts of documents and of several turns are longer than this at times, and most others are not"""


class PromptsLoseTheirEnd(SourceRule):
    code = "SRC102"
    fault = Fault.PROMPTS_CUT_BEFORE_ANSWERING
    severity = "warning"
    looks_at = GENERATE_CALLS

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if module.mentions("truncation_side") or has_encoder_models_only(module):
            return
        reported: set[object] = set()
        for call in generate_calls(module):
            for batch in _tokenizer_calls_of_prompts(module, call):
                length = module.flow.value(batch.keywords.get("max_length"))
                cuts = module.flow.value(batch.keywords.get("truncation")) is True
                if (
                    not cuts
                    or not isinstance(length, int)
                    or length > LONG
                    or batch.node in reported
                ):
                    continue
                reported.add(batch.node)
                yield self.finding(
                    f"prompts of more than {length:,} tokens are truncated at their end: the question and the"
                    " generation prompt are lost",
                    f"raise max_length above {length}, or shorten the document before the prompt is built, or"
                    ' set truncation_side="left" on the tokenizer (which then cuts the system message)',
                    cases=[case_of_node(module, batch.node), case_of_node(module, call.node)],
                )


def _tokenizer_calls_of_prompts(module: Module, call: Call) -> Iterator[Call]:
    """The calls of a tokenizer that this `generate` gets its prompts from."""
    ids = input_ids_argument(call)
    spread = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
    # Ids may stand in a subscript: `inputs["input_ids"]` comes from the call that made `inputs`.
    for value in spread if ids is None else [*spread, variable_of_entry(ids)]:
        yield from encoding_calls_of_dictionary(module, value)
