"""The evaluation keeps the logits of all rows on the GPU until it ends.

## What it does
Where metrics are computed from logits that nothing reduces (no `preprocess_logits_for_metrics`) and
`eval_accumulation_steps` is not set, it predicts what is kept: rows x length x vocabulary x 4 bytes.

## Why it is bad
Training fits; the first evaluation runs out of memory, often hours later.

## Example
```yaml
config:
  max_length: 512
  eval_data: [eval.jsonl]
  training: {eval_strategy: steps, eval_logits_kept: true}
model: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2, num_attention_heads: 4,
        vocab_size: 151936}
files: {eval.jsonl: 500}
machine: {gpus: 1, memory: 80}
```

## Use instead
```yaml
config:
  max_length: 512
  eval_data: [eval.jsonl]
  training: {eval_strategy: steps, eval_logits_kept: false}
model: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2, num_attention_heads: 4,
        vocab_size: 151936}
files: {eval.jsonl: 500}
machine: {gpus: 1, memory: 80}
```

## Fix safety
`preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)` keeps one number a token, and metrics of the
predicted tokens stay the same. `eval_accumulation_steps` only moves the logits to the memory of the CPU.

## References
- huggingface/transformers#12878, huggingface/transformers#15466, huggingface/transformers#27458, huggingface/trl#893,
  hiyouga/LLaMA-Factory#1595
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.keys import case
from truetune.checks.config.model import settings
from truetune.checks.devices.model import eval_rows
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import DeviceRule
from truetune.memory.estimate import GIB

LITTLE = 1 * GIB
"""Bytes; less goes unnoticed"""


class EvalOomLogitsKept(DeviceRule):
    code = "DEV011"
    severity = "error"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        if self.training.eval_logits_kept is not None:
            return None
        return Unmet(
            "settings do not say whether metrics are computed from logits: compute_metrics is code",
            "set training.eval_logits_kept, or lint the script (evaluation-keeps-all-logits)",
        )

    def findings(self) -> Iterator[Finding]:
        training, spec = self.training, self.config.spec
        evaluates = (training.eval_strategy or "no") != "no"
        if not training.eval_logits_kept or training.eval_accumulation_steps or not evaluates:
            return
        model = settings(self.config)
        inner = model.get("text_config")
        vocabulary = (inner if isinstance(inner, dict) else model).get("vocab_size")
        factors = (eval_rows(self.config), spec.max_length or self.config.limit, vocabulary)
        names = ("rows", "tokens of a row", "words of the vocabulary")
        shown = " x ".join(
            f"{n:,}" if isinstance(n, int) else word for n, word in zip(factors, names, strict=True)
        )
        size = 4.0
        for factor in factors:
            size *= factor if isinstance(factor, int) else float("nan")
        if size <= LITTLE:
            return
        holds = max((gpu.memory for gpu in self.machine.gpus), default=None)
        yield self.finding(
            f"an evaluation keeps {shown} x 4 bytes of logits until it ends"
            + (f": {size / GIB:,.0f} GiB" if size == size else ""),
            "reduce them: preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)",
            severity="error" if holds is not None and size > holds else "warning",
            evidence=[f"each GPU has {holds / GIB:.0f} GiB"] if holds else [],
            cases=[case(self.config, "not set", "training.eval_accumulation_steps")],
        )
