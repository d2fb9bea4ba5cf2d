"""A model is evaluated in float16, and its activations are too large for that format.

## What it does
Looks for evaluations in float16: `fp16_full_eval=True` in a script that calls `evaluate` or `predict` (and `fp16=True`
if it does not train), and forward passes whose loss or logits are read, with weights that are loaded or cast to
float16, or under float16 autocast. It is a warning if the model's family overflows (Gemma 2 and 3, T5), by its name in
the script, by a command that starts the script (in a job, a README or a console log), or by its config.json. If the
model comes from the only training script next to it, it is info, and a warning if an output there shows an evaluation
loss of NaN. For T5 only a cast counts: `from_pretrained` keeps the overflowing layers in float32. Models that generate
are checked by `generation-overflows-float16`.

## Why it is bad
float16 ends at 65,504, and these models exceed it inside their layers: the logits become NaN, and so do the loss and
the perplexity, even for the untouched base. The training in bfloat16 was fine, so the merge or the data get the blame.

## Example
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("google/gemma-2-9b-it", dtype="auto")
arguments = TrainingArguments("eval", fp16_full_eval=True)
print(Trainer(model=model, args=arguments, eval_dataset=rows).evaluate())
```

## Use instead
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("google/gemma-2-9b-it", dtype="auto")
arguments = TrainingArguments("eval", bf16_full_eval=True)
print(Trainer(model=model, args=arguments, eval_dataset=rows).evaluate())
```

## Fix safety
bfloat16 needs an Ampere GPU or newer (A10, RTX 30). A T4 or V100 computes it slowly, or not at all: use float32 there,
which takes twice the memory.

## References
- huggingface/transformers#36822 (Gemma 3), huggingface/transformers#4586 (T5); unsloth documentation, "Gemma 3"
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.float16_evaluations import (
    AUTOCAST_SETTING,
    EvaluatedModel,
    Float16Evaluation,
    evaluated_model_unfit_for_float16,
    evaluation_places,
    float16_evaluations,
    nan_loss_line_beside,
)

OVERFLOWS_AS_LOADED = "gemma"
"""Beginning of the families that overflow however they are loaded"""


class EvaluationOverflowsFloat16(SourceRule):
    code = "SRC340"
    fault = Fault.FLOAT16_RANGE_EXCEEDED
    symptoms = ("odd-metrics",)
    severity = "warning"
    stability = "preview"
    looks_at = CodePlaces("evaluations", evaluation_places)

    def findings(self) -> Iterator[Finding]:
        """Findings on models that are evaluated in float16, whose activations are too large for it."""
        module = self.subject
        for float16_evaluation in float16_evaluations(module):
            model = evaluated_model_unfit_for_float16(module, float16_evaluation)
            if model is None or not _overflows_in_float16(model, float16_evaluation):
                continue
            shown = nan_loss_line_beside(module)
            is_proved = model.is_sure or bool(shown)
            yield self.finding(
                _message_on_overflowing_model(model),
                _edit_avoiding_float16(float16_evaluation),
                severity="warning" if is_proved else "info",
                evidence=[shown] if shown else [],
                cases=[
                    case_of_node(
                        module,
                        float16_evaluation.node,
                        module.lines.line(module.place(float16_evaluation.node)[0]).strip(),
                    )
                ],
            )
            return


def _overflows_in_float16(model: EvaluatedModel, float16_evaluation: Float16Evaluation) -> bool:
    """Does the family overflow, loaded or cast as it is?"""
    return (
        float16_evaluation.is_cast
        or model.family.startswith(OVERFLOWS_AS_LOADED)
        or not model.family
    )


def _message_on_overflowing_model(model: EvaluatedModel) -> str:
    """The finding's message: what is wrong, as far as the model is known."""
    if not model.family:
        return (
            f"{model.where} trains in bfloat16, but the evaluation computes in float16, whose largest number is 65,504:"
            " if activations of the model are larger, the loss is NaN"
        )
    named = f" ({model.where})" if model.where else ""
    return (
        f"the evaluation computes in float16, whose largest number is 65,504, but activations of {model.family}{named}"
        " are larger: the logits and the loss are NaN, even for the untouched base"
    )


def _edit_avoiding_float16(float16_evaluation: Float16Evaluation) -> str:
    """The edit that avoids float16."""
    if float16_evaluation.setting == AUTOCAST_SETTING:
        return (
            "set bf16=True instead of fp16=True; on a GPU without bfloat16 (T4, V100) set neither"
        )
    if float16_evaluation.setting:
        return (
            "set bf16_full_eval=True instead of fp16_full_eval=True; on a GPU without bfloat16 (T4, V100) set"
            " neither"
        )
    return (
        "load it with dtype=torch.bfloat16, and remove other casts; on a GPU without bfloat16 (T4, V100) use"
        " dtype=torch.float32"
    )
