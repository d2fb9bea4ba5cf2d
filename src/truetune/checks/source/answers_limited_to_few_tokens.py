"""Answers of at most 32 tokens are compared with references of whole sentences.

## What it does
Follows what `generate(max_new_tokens=N)` with N up to 32 returns, through `decode`, to the `predictions` of ROUGE,
BLEU, METEOR or BERTScore, which compare texts. A choice, a number or a label takes so few, and is measured otherwise.

## Why it is bad
Every answer is cut after some twenty words. The metric then measures the limit, and not the model.

## Example
```python
import evaluate
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
rouge = evaluate.load("rouge")
inputs = tokenizer(["Summarise: ..."], return_tensors="pt")
out = model.generate(**inputs, max_new_tokens=20)
texts = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
rouge.compute(predictions=texts, references=summaries)
```

## Use instead
```python
import evaluate
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
rouge = evaluate.load("rouge")
inputs = tokenizer(["Summarise: ..."], return_tensors="pt")
out = model.generate(**inputs, max_new_tokens=256)
texts = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
rouge.compute(predictions=texts, references=summaries)
```

## Fix safety
There is no automatic fix: as many tokens as the longest reference has, and some more.

## References
- huggingface/transformers: `GenerationConfig.max_new_tokens`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.generation import GENERATIONS, generations
from truetune.checks.source.kept_answers import is_scored
from truetune.checks.source.places import at
from truetune.source.module import Module

FEW = 32
"""Tokens; the median reference of public summaries and dialogues has 40 to 70"""
TEXT_METRICS = ("rouge", "bleu", "sacrebleu", "meteor", "bertscore")
LOADS = ("evaluate.load", "datasets.load_metric")


class AnswersLimitedToFewTokens(SourceRule):
    code = "TT769"
    severity = "warning"
    looks_at = GENERATIONS

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if not _compares_texts(module):
            return
        for call in generations(module):
            limit = module.flow.value(call.keywords.get("max_new_tokens"))
            few = isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit <= FEW
            if few and is_scored(module, call.node):
                yield self.finding(
                    f"answers are cut after {limit} tokens, and compared with whole texts",
                    "give a larger max_new_tokens, as 256, for the longest reference",
                    cases=[at(module, call.node)],
                )


def _compares_texts(module: Module) -> bool:
    loaded = (module.flow.value(call.argument(0, "path")) for call in module.calls(*LOADS))
    return any(name in TEXT_METRICS for name in loaded if isinstance(name, str))
