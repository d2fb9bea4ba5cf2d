"""The tokenizer writes EOS after the prompts that a model is to continue.

## What it does
Follows what `generate` is given back to the tokenizer that encoded it, and finds tokenizers that append EOS:
`add_eos_token=True` where one is loaded, the attribute that is set, or `tokenizer_config.json` of a folder beside the
script, also for vLLM. Chat templates, `add_special_tokens=False` and ids that are cut after the tokenizer are left
alone. It is an error for tokenizers that obey the setting in every release of transformers (Llama 2's, Mistral's,
Gemma's), and a warning for others, which do since transformers 5.

## Why it is bad
The setting is for training, where each text has to end. At inference the model reads a text that is over: it writes
nothing, starts another topic, or repeats the question. Its weights are right, and look broken.

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
There is no automatic fix: one tokenizer may serve training and inference.

## References
- transformers documentation, `LlamaTokenizer`: `add_eos_token`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.eos_after_prompts import prompts_ending_in_eos
from truetune.checks.source.evidence.generate_call_inputs import GENERATE_CALLS


class PromptsEndInEos(SourceRule):
    code = "SRC152"
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    looks_at = GENERATE_CALLS

    def findings(self) -> Iterator[Finding]:
        for found in prompts_ending_in_eos(self.subject):
            nodes = [found.generation.node, *([] if found.sign is None else [found.sign])]
            yield self.finding(
                f"the tokenizer writes EOS after the prompt ({found.why}): the model is to continue a text that has"
                " ended",
                "load the tokenizer for inference with add_eos_token=False",
                severity=None if found.is_sure else "warning",
                cases=[case_of_node(self.subject, node) for node in nodes],
            )
