"""The tokenizer appends EOS to the prompts that a model should continue.

## What it does
Traces the input of `generate` back to the tokenizer that encoded it, and finds tokenizers that append EOS:
`add_eos_token=True` in the load, the attribute that is set, or `tokenizer_config.json` of a folder next to the script,
also for vLLM. It does not report chat templates, `add_special_tokens=False`, and ids that are cut after the tokenizer.
It is an error for tokenizers that follow the setting in every release of transformers (Llama 2's, Mistral's, Gemma's),
and a warning for others, which follow it since transformers 5.

## Why it is bad
The setting is for training, where each text must end in EOS. At inference the model sees a text that has ended: it
writes nothing, starts another topic, or repeats the question. The weights are right, but look broken.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1", device_map="auto")
tokenizer = AutoTokenizer.from_pretrained("mistralai/Mistral-7B-v0.1", add_eos_token=True)
inputs = tokenizer("Question: 1 + 1?\\nAnswer:", return_tensors="pt").to(model.device)
print(model.generate(**inputs, max_new_tokens=9))
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1", device_map="auto")
tokenizer = AutoTokenizer.from_pretrained("mistralai/Mistral-7B-v0.1", add_eos_token=False)
inputs = tokenizer("Question: 1 + 1?\\nAnswer:", return_tensors="pt").to(model.device)
print(model.generate(**inputs, max_new_tokens=9))
```

## Fix safety
There is no automatic fix: the same tokenizer object may be used for training, which needs the EOS. Load a second one
for inference.

## References
- transformers documentation, `LlamaTokenizer`: `add_eos_token`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.eos_after_prompts import prompts_ending_in_eos
from truetune.checks.source.evidence.generate_call_inputs import GENERATE_CALLS


class PromptsEndInEos(SourceRule):
    code = "SRC152"
    fault = Fault.EOS_ENDS_PROMPTS
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    looks_at = GENERATE_CALLS

    def findings(self) -> Iterator[Finding]:
        for prompt_ending_in_eos in prompts_ending_in_eos(self.subject):
            nodes = [
                prompt_ending_in_eos.generation.node,
                *([] if prompt_ending_in_eos.sign is None else [prompt_ending_in_eos.sign]),
            ]
            yield self.finding(
                f"the tokenizer appends EOS to the prompt ({prompt_ending_in_eos.why}): the model should continue a"
                " text that has already ended",
                "load the tokenizer for inference with add_eos_token=False",
                severity=None if prompt_ending_in_eos.is_sure else "warning",
                cases=[case_of_node(self.subject, node) for node in nodes],
            )
