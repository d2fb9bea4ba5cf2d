"""A merge writes a model in float16 whose activations overflow there.

## What it does
Looks at `dtype` and `out_dtype` of mergekit's YAML. It fires for float16 if a merged model belongs to a family whose
activations pass float16's largest number, by its name (Gemma 2 and 3, T5).

## Why it is bad
The weights themselves fit into float16, so the merge ends without an error. A program that loads the model in the type
that config.json names then computes infinities: answers are empty or one token repeated.

## Example
```yaml
config:
  models:
    - {model: google/gemma-2-9b-it, parameters: {weight: 0.5}}
    - {model: ./gemma2-9b-sft, parameters: {weight: 0.5}}
  merge_method: linear
  dtype: float16
```

## Use instead
```yaml
config:
  models:
    - {model: google/gemma-2-9b-it, parameters: {weight: 0.5}}
    - {model: ./gemma2-9b-sft, parameters: {weight: 0.5}}
  merge_method: linear
  dtype: bfloat16
```

## Fix safety
Safe: bfloat16 is the type in which the models are published.

## References
- google/gemma-2-9b-it on the hub (bfloat16); huggingface/transformers#31542
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.parts_of_merge import merged_models
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.identify_model_by_published_name import family_known_to_overflow_float16
from truetune.checks.rule import ConfigRule


class MergeOverflowsInFloat16(ConfigRule):
    code = "CFG264"
    fault = Fault.FLOAT16_RANGE_EXCEEDED
    symptoms = ("garbage-output",)
    severity = "error"
    stacks = ("mergekit",)

    def measurement_if_clean(self) -> str:
        """The type in which the merge is written."""
        return f"dtype: {self.subject.raw.get('out_dtype') or self.subject.raw.get('dtype')}"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        config = self.subject
        key = "out_dtype" if config.raw.get("out_dtype") else "dtype"
        if str(config.raw.get(key)) not in ("float16", "fp16", "half"):
            return
        names = [model.name for model in merged_models(config)]
        overflowing_name = next(
            (name for name in names if family_known_to_overflow_float16(name)), None
        )
        if overflowing_name is not None:
            yield self.finding(
                f"{key} is float16, and the activations of {overflowing_name} pass its largest number: answers"
                " become empty or repeat one token",
                f"set {key}: bfloat16",
                cases=[setting_case(config, config.raw.get(key), key)],
            )
