"""A model that was trained in bfloat16 is trained in float16.

## What it does
Compares `fp16` (or `dtype: float16`) with what the checkpoint's config.json says its weights are stored as.

## Why it is bad
float16 ends at 65,504; bfloat16 reaches as far as float32, and models that were trained in it use that. Where an
activation is larger, the loss becomes NaN or, in the log, 0.0, or the scaler skips step after step and the line stays
flat.

## Example
```yaml
files:
  model/config.json: {model_type: llama, dtype: bfloat16}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  fp16: true
```

## Use instead
```yaml
files:
  model/config.json: {model_type: llama, dtype: bfloat16}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  bf16: true
```

## Fix safety
A GPU without bfloat16 (T4, V100) can't: load the weights as float32 there, and watch the loss for 0.0.

## References
- Lightning-AI/lit-llama#294, huggingface/transformers#25021, hiyouga/LLaMA-Factory#3353
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.keys import case
from truetune.checks.config.lacking import NO_MODEL
from truetune.checks.config.model import stored_dtype
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule


class Fp16Overflow(ConfigRule):
    code = "TT611"
    severity = "warning"
    reads = ("training.fp16", "training.bf16", "training.dtype")

    def unmet(self) -> Unmet | None:
        if (lacking := super().unmet()) is not None:
            return lacking
        training = self.subject.spec.training
        half = training.fp16 or (
            training.dtype == "float16" and not training.bf16 and not training.load_in
        )
        return NO_MODEL if half and stored_dtype(self.subject) is None else None

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        half = training.fp16 or (
            training.dtype == "float16" and not training.bf16 and not training.load_in
        )
        if training.fp16 and training.dtype == "bfloat16":
            yield self.finding(
                "the weights are loaded as bfloat16 and trained under float16, whose largest number"
                " is 65,504",
                "set bf16: true and fp16: false",
                cases=[
                    case(config, True, "training.fp16"),
                    case(config, "bfloat16", "training.dtype"),
                ],
            )
        elif half and stored_dtype(config) == "bfloat16":
            field = "training.fp16" if training.fp16 else "training.dtype"
            yield self.finding(
                "a model that was trained in bfloat16 is trained in float16, whose largest number"
                " is 65,504",
                "set bf16: true and fp16: false",
                cases=[
                    case(config, training.fp16 or training.dtype, field),
                    Case(
                        "dtype: bfloat16",
                        file=f"{config.spec.model or config.spec.tokenizer}/config.json",
                    ),
                ],
            )
