"""The evaluation batch size is left at its default of 8, and its logits do not fit the GPU.

## What it does
Looks at transformers trainers that evaluate (`eval_strategy`) with `per_device_eval_batch_size` left at its default of
8 although the training batch size is 1, or up to 2 if the model is quantized: memory is scarce there. It fires if the
float32 logits of 8 rows of the longest length take 8 GiB or more, for models whose vocabulary is known. It does not
fire with Liger kernels, which never store the logits.

## Why it is bad
Training runs well, and then the first evaluation ends in an out-of-memory error. Evaluation keeps no gradients, but the
loss takes the logits in float32: rows x length x vocabulary x 4 bytes.

## Example
```yaml
config:
  model_name_or_path: google/gemma-3-4b-it
  dataset_name: some/rows
  max_length: 2048
  per_device_train_batch_size: 1
  eval_strategy: steps
```

## Use instead
```yaml
config:
  model_name_or_path: google/gemma-3-4b-it
  dataset_name: some/rows
  max_length: 2048
  per_device_train_batch_size: 1
  per_device_eval_batch_size: 1
  eval_strategy: steps
```

## Fix safety
Results do not change. The evaluation takes a little longer.

## References
- transformers `TrainingArguments.per_device_eval_batch_size` (default 8); transformers/loss/loss_utils.py (logits in
  float32)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule
from truetune.memory.published_model_shapes import published_config

EVAL_BATCH = "training.per_device_eval_batch_size"
TRAIN_BATCH = "training.per_device_train_batch_size"
DEFAULT_EVAL_BATCH = 8
"""transformers' default of per_device_eval_batch_size"""
# Chosen, not measured: 8 GiB for one tensor is a third of a 24 GB card, and the loss makes a copy of it. At half,
# models with 128,000 tokens at 1,024 would be told, which run on such a card.
MIN_BYTES = 8 * 2**30


class EvaluationBatchLeftToDefault(ConfigRule):
    code = "CFG054"
    fault = Fault.EVALUATION_FILLS_GPU_MEMORY
    symptoms = ("out-of-memory",)
    severity = "warning"
    methods = ("sft",)
    stacks = ("trl", "transformers", "llama-factory")
    reads = (EVAL_BATCH, TRAIN_BATCH)

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        rows, length = training.per_device_train_batch_size, config.limit
        if EVAL_BATCH in config.places or training.eval_strategy in (None, "no"):
            return
        most = 1 if training.load_in is None else 2
        if rows is None or rows > most or length is None or training.use_liger_kernel:
            return
        shape = published_config(config.spec.model or "")
        vocabulary = shape.get("vocab_size") if shape is not None else None
        if not isinstance(vocabulary, int):
            return
        size = DEFAULT_EVAL_BATCH * length * vocabulary * 4
        if size < MIN_BYTES:
            return
        yield self.finding(
            f"the evaluation batch size is {DEFAULT_EVAL_BATCH} by default (training: {rows}): the logits of"
            f" {DEFAULT_EVAL_BATCH} rows of {length:,} tokens over a vocabulary of {vocabulary:,} take"
            f" {size / 2**30:.1f} GiB in float32",
            f"set per_device_eval_batch_size to {rows}",
            cases=[
                setting_case(config, DEFAULT_EVAL_BATCH, EVAL_BATCH),
                setting_case(config, rows, TRAIN_BATCH),
            ],
        )
