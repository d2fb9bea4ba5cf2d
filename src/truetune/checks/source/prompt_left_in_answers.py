"""Answers are scored or kept with their prompt in front.

## What it does
Follows what a causal model generates, through `decode` or `batch_decode` of the whole output, to where the text is used
as an answer: given to a metric, or kept under a name such as `prediction` or `response`. Silent where anything is cut:
the ids behind the prompt, or the text by `split`, `replace`, a slice, a pattern or a function of the file.

## Why it is bad
`generate` of a causal model returns prompt and answer. A metric that gets both compares the question with the
reference; a parser finds its number in the prompt; pairs made of such texts begin with the same words on both sides.

## Example
```python
import evaluate
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
metric = evaluate.load("rouge")
for row in rows:
    inputs = tokenizer(row["prompt"], return_tensors="pt")
    out = model.generate(**inputs, max_new_tokens=64)
    text = tokenizer.decode(out[0], skip_special_tokens=True)
    metric.add(prediction=text, reference=row["answer"])
```

## Use instead
```python
import evaluate
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
metric = evaluate.load("rouge")
for row in rows:
    inputs = tokenizer(row["prompt"], return_tensors="pt")
    out = model.generate(**inputs, max_new_tokens=64)
    text = tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    metric.add(prediction=text, reference=row["answer"])
```

## Fix safety
There is no automatic fix: cut the ids at the length of the prompt's, `out[:, inputs["input_ids"].shape[1]:]`.

## References
- huggingface/transformers#17117
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.decoded_answers import decodes_of_generated_ids, use_as_answer
from truetune.source.module import Module


def _decoded_outputs(module: Module) -> Iterator[object]:
    """Where ids that a causal model generated are decoded."""
    return decodes_of_generated_ids(module)


class PromptLeftInAnswers(SourceRule):
    code = "SRC076"
    severity = "warning"
    looks_at = CodePlaces("decoded generations of causal models", _decoded_outputs)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in decodes_of_generated_ids(module):
            use = use_as_answer(module, call)
            if use is not None:
                yield self.finding(
                    "an answer is used with its prompt in front: generate returns both, and nothing"
                    " cuts the prompt",
                    'decode what follows the prompt: out[:, inputs["input_ids"].shape[1]:]',
                    cases=[case_at(module, call.node), case_at(module, use)],
                )
