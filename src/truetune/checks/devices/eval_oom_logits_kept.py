"""Evaluation keeps the logits of all rows on the GPU until it ends.

## What it does
If metrics are computed from full logits (no `preprocess_logits_for_metrics`) and `eval_accumulation_steps` is not set,
it predicts how much is kept: rows x length x vocabulary x 4 bytes.

## Why it is bad
Training fits in memory, but the first evaluation runs out of it, often hours later.

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
`preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)` keeps one number per token; metrics of the
predicted tokens stay the same. `eval_accumulation_steps` only moves the logits to CPU memory.

## References
- huggingface/transformers#12878, huggingface/transformers#15466, huggingface/transformers#27458, huggingface/trl#893,
  hiyouga/LLaMA-Factory#1595
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import prod

from truetune.checks.config.evidence.facts_from_model_folder import model_config
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.devices.read_architecture_and_row_count import count_eval_rows
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import DeviceRule
from truetune.memory.estimate_memory import GIB

# Chosen, not measured: less fits beside nearly any run. Half would name evaluations of a hundred short rows, double
# would miss those that break a GPU which training fills.
UNNOTICED_BYTES = 1 * GIB
FLOAT32_BYTES = 4.0


class EvalOomLogitsKept(DeviceRule):
    code = "DEV011"
    fault = Fault.EVALUATION_FILLS_GPU_MEMORY
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
        if not self._does_evaluation_keep_logits():
            return
        factors = self._factors_of_logit_count()
        logits_bytes = _logits_bytes(factors.values())
        if logits_bytes is not None and logits_bytes <= UNNOTICED_BYTES:
            return
        # The largest GPU: an error has to be one on every GPU of the machine.
        gpu_bytes = max((gpu.memory for gpu in self.machine.gpus), default=0)
        is_too_large = gpu_bytes > 0 and (logits_bytes or 0) > gpu_bytes
        yield self.finding(
            f"an evaluation keeps the logits of all rows until it ends: {_describe_product(factors)} x 4 bytes"
            + (f", {logits_bytes / GIB:,.0f} GiB" if logits_bytes is not None else ""),
            "pass preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1) to the Trainer",
            severity="error" if is_too_large else "warning",
            evidence=[f"each GPU has {gpu_bytes / GIB:.0f} GiB"] if gpu_bytes else [],
            cases=[setting_case(self.config, "not set", "training.eval_accumulation_steps")],
        )

    def _does_evaluation_keep_logits(self) -> bool:
        """Is there an evaluation, with metrics from logits, that moves none of them to the CPU on its way?"""
        training = self.training
        evaluates = (training.eval_strategy or "no") != "no"
        return bool(
            evaluates and training.eval_logits_kept and not training.eval_accumulation_steps
        )

    def _factors_of_logit_count(self) -> dict[str, int | None]:
        """What the number of logits is a product of, by its name in the message; None for what is not known."""
        model = model_config(self.config)
        # Models of text and images keep the settings of the language model one level deeper.
        inner = model.get("text_config")
        vocabulary = (inner if isinstance(inner, dict) else model).get("vocab_size")
        length = self.config.spec.max_length or self.config.limit
        return {
            "rows": count_eval_rows(self.config),
            "tokens of a row": length if isinstance(length, int) else None,
            "words of the vocabulary": vocabulary if isinstance(vocabulary, int) else None,
        }


def _describe_product(factors: Mapping[str, int | None]) -> str:
    """`12 x 2,048 x words of the vocabulary`: the factors that are known, and the names of the others."""
    return " x ".join(name if factor is None else f"{factor:,}" for name, factor in factors.items())


def _logits_bytes(factors: Collection[int | None]) -> float | None:
    """The memory of all logits, which the Trainer keeps in float32; None where a factor is not known."""
    known = [factor for factor in factors if factor is not None]
    return FLOAT32_BYTES * prod(known) if len(known) == len(factors) else None
