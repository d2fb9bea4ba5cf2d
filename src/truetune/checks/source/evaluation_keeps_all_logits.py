"""Metrics are computed from the logits of the whole evaluation set.

## What it does
Looks for a trainer of a causal model (`SFTTrainer` trains no other) with `compute_metrics` and neither
`preprocess_logits_for_metrics` nor `eval_accumulation_steps` nor `batch_eval_metrics`, that is given rows to evaluate
on, or asked to evaluate.

## Why it is bad
The logits of all rows are kept until the end: rows x length x vocabulary x 4 bytes. 500 rows of 1,024 tokens at a
vocabulary of 150,000 are 300 GB: training fits, and the first evaluation runs out of memory.

## Example
```python
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer

rows = load_dataset("some/rows", split="test")
model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(model=model, eval_dataset=rows, compute_metrics=lambda pred: {"n": len(pred.predictions)})
```

## Use instead
```python
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer

rows = load_dataset("some/rows", split="test")
model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(
    model=model,
    eval_dataset=rows,
    compute_metrics=lambda pred: {"n": len(pred.predictions)},
    preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
)
```

## Fix safety
`compute_metrics` then gets what the function returns, and must not take the argmax again.

## References
- huggingface/transformers#12878, huggingface/transformers#15466, huggingface/transformers#27458, huggingface/trl#893
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.metrics_unshifted import TRAINERS_OF_CAUSAL, trainers_of_causal
from truetune.checks.source.places import at

ELSEWHERE = (
    "eval_accumulation_steps",
    "batch_eval_metrics",
    "prediction_loss_only",
    "def prediction_step",
    "def evaluation_loop",
)
"""What keeps less, or may: a method of the trainer's own class gives back what it likes"""


class EvaluationKeepsAllLogits(SourceRule):
    code = "SRC061"
    severity = "warning"
    since = "0.1.0"
    looks_at = TRAINERS_OF_CAUSAL

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if module.mentions(*ELSEWHERE):
            return
        evaluates = any(module.methods("evaluate", "predict"))
        for call in trainers_of_causal(module):
            if not evaluates and call.lacks("eval_dataset"):
                continue
            given = call.keywords.get("compute_metrics")
            if (
                given is not None
                and module.flow.value(given) is not None
                and call.lacks("preprocess_logits_for_metrics")
            ):
                yield self.finding(
                    "compute_metrics gets the logits of the whole evaluation set, which are kept"
                    " until its end",
                    "give preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1) "
                    "(compute_metrics then takes none)",
                    evidence=["they take rows x length x vocabulary x 4 bytes"],
                    cases=[at(module, given)],
                )
