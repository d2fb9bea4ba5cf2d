"""The model of a hand-written loop is in eval() mode, so its dropout is off.

## What it does
Reads the mode of the model and the dropout of its modules. It is about hand-written loops, and info: a Trainer calls
`model.train()` at each step. `from_pretrained` returns models in eval() mode.

## Why it is bad
Dropout of the model or of an adapter (`lora_dropout`) does nothing, and batch norms keep their statistics. Gradient
checkpointing of transformers models is off, so the run needs more memory than planned.

## Example

```python
run = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], lora_dropout=0.1))
run.eval()
loader = torch.utils.data.DataLoader(encoded(rows), 2, collate_fn=transformers.DataCollatorForSeq2Seq(tokenizer))
```

## Use instead

```python
run = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], lora_dropout=0.1))
run.train()
loader = torch.utils.data.DataLoader(encoded(rows), 2, collate_fn=transformers.DataCollatorForSeq2Seq(tokenizer))
```

## Fix safety
`model.train()` before the loop, and again after each evaluation, is safe; dropout then makes the training loss a little
higher.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.train
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import BatchRule


class ModelLeftInEvalMode(BatchRule):
    code = "BAT040"
    fault = Fault.DROPOUT_IN_WRONG_MODE
    symptoms = ("out-of-memory",)
    severity = "info"
    needs_batches = False

    def findings(self) -> Iterator[Finding]:
        model = self.subject.facts["model"]
        if self.subject.kind == "loop" and not model["training"] and model["dropout"]:
            yield self.finding(
                f"the model is in eval() mode, so its dropout of {model['dropout']:g} is off",
                "call model.train() before the loop, and again after each evaluation (a Trainer"
                " does so itself)",
            )

    def unmet(self) -> Unmet | None:
        model = self.subject.facts["model"]
        if not model["parameters"]:
            return Unmet("there is no model")
        if self.subject.kind != "loop":
            return Unmet("it is about hand-written loops, and a trainer sets the mode itself")
        return None

    def measurement_if_clean(self) -> str:
        """The mode of the model, train() or eval(), and its highest dropout."""
        model = self.subject.facts["model"]
        mode = "train()" if model["training"] else "eval()"
        return f"the model is in {mode} mode; its highest dropout is {model['dropout']:g}"
