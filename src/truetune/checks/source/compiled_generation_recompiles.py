"""A compiled model generates from prompts of different lengths, and compiles again for each length.

## What it does
Looks for `generate` in a loop with a model that is compiled with `dynamic=False`, or that has a static cache
(`cache_implementation="static"`), and follows its ids to the tokenizer. It fires if the tokenizer pads neither to a
fixed length (`padding="max_length"`) nor to a multiple (`pad_to_multiple_of`).

## Why it is bad
A compilation takes from ten seconds to minutes, and is valid for one shape. With `dynamic=False` each new prompt length
compiles again, up to `recompile_limit` (8); after that the model runs uncompiled. A static cache is rebuilt for each
prompt that is longer than those before. The answers are right, but slower than without compilation.

## Example
```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
model.forward = torch.compile(model.forward, dynamic=False)
for prompt in prompts:
    batch = tokenizer(prompt, return_tensors="pt")
    print(tokenizer.decode(model.generate(**batch, max_new_tokens=64)[0]))
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("model")
model.forward = torch.compile(model.forward, dynamic=False)
for prompt in prompts:
    batch = tokenizer(prompt, return_tensors="pt", padding=True, pad_to_multiple_of=256)
    print(tokenizer.decode(model.generate(**batch, max_new_tokens=64)[0]))
```

## Fix safety
Answers are the same up to rounding, if the padding is on the left and the attention mask is passed.

## References
- https://huggingface.co/docs/transformers/llm_optims (static cache and `pad_to_multiple_of`)
- https://docs.pytorch.org/docs/stable/generated/torch.compile.html (`dynamic`)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import GENERATE_CALLS
from truetune.checks.source.evidence.recompiled_generations import recompiled_generations


class CompiledGenerationRecompiles(SourceRule):
    code = "SRC184"
    fault = Fault.COMPILED_MODEL_RECOMPILES
    symptoms = ("slow-generation",)
    severity = "warning"
    looks_at = GENERATE_CALLS

    def findings(self) -> Iterator[Finding]:
        """Findings on compiled models that compile again for prompts of other lengths."""
        module = self.subject
        for recompiled_generation in recompiled_generations(module):
            why = (
                "the static cache is rebuilt, and the model compiled again, for each longer prompt"
                if recompiled_generation.is_cache
                else "with dynamic=False the model compiles again for each new length"
            )
            yield self.finding(
                f"prompts have different lengths, and {why}",
                'pad prompts on the left to a multiple: padding_side="left", padding=True, pad_to_multiple_of=256'
                + ("" if recompiled_generation.is_cache else "; or remove dynamic=False"),
                cases=[
                    case_of_node(module, recompiled_generation.generation.node),
                    case_of_node(module, recompiled_generation.fixed_by),
                    case_of_node(module, recompiled_generation.encoding.node),
                ],
            )
