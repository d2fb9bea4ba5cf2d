"""Answers are generated under settings that make right ones impossible.

## What it does
Judges the arguments of `generate`, `GenerationConfig`, pipelines and vLLM's `SamplingParams`: forbidden n-grams,
penalties on repetition, temperatures, a least length, stop tokens that are not heeded. Lower penalties count where the
file speaks of JSON, SQL or the like.

## Why it is bad
A tuned model that has learned a format needs to repeat itself: keys of JSON, names, brackets, words of the prompt.
`no_repeat_ngram_size=4` bans every four tokens that came before, in the prompt too, and `repetition_penalty=1.3`
divides the logit of every token that came before. The model was trained well, and its answers do not parse.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
inputs = tokenizer("List the parts of order 17:", return_tensors="pt")
out = model.generate(**inputs, max_new_tokens=512, do_sample=False, no_repeat_ngram_size=4)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
inputs = tokenizer("List the parts of order 17:", return_tensors="pt")
out = model.generate(**inputs, max_new_tokens=512, do_sample=False, repetition_penalty=1.0)
```

## Fix safety
Where answers loop without a penalty, the cause is in training: stop tokens that were not learned, or too many epochs.

## References
- huggingface/transformers: `NoRepeatNGramLogitsProcessor`, `RepetitionPenaltyLogitsProcessor`
- Keskar et al., CTRL (arXiv:1909.05858), section 4.1
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.ranged_arguments import generating_calls, has_number, named_arguments
from truetune.checks.value_limits import GENERATION
from truetune.source.module import Module


def _calls(module: Module) -> Iterator[object]:
    return (given for given in generating_calls(module) if has_number(given))


class GenerationSettingsDistortAnswers(SourceRule):
    code = "SRC079"
    severity = "warning"
    moot_where = ("repetition-forbidden-in-structured-answers",)
    looks_at = CodePlaces("calls that set how answers are generated", _calls)

    def findings(self) -> Iterator[Finding]:
        for given in generating_calls(self.subject):
            for found in named_arguments(self.subject, given, GENERATION):
                yield self.finding(
                    found.text,
                    found.fix,
                    severity=found.breach.limit.severity,
                    evidence=[found.breach.limit.source],
                    cases=found.cases,
                )
