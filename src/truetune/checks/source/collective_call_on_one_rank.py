"""A call that all processes must make together stands under a condition that only one process meets.

## What it does
Looks for `trainer.evaluate`, `predict` and `train`, `barrier`, `all_reduce`, `all_gather`, `gather` and
`wait_for_everyone` inside `if rank == 0`, `if is_main_process` and the like.

## Why it is bad
The one process waits for the others, which never come: the run hangs until a time-out of half an hour, often at its
very end.

## Example
```python
from transformers import AutoModelForCausalLM, Trainer

trainer = Trainer(model=AutoModelForCausalLM.from_pretrained("model"))
trainer.train()
if trainer.is_world_process_zero():
    print(trainer.evaluate())
```

## Use instead
```python
from transformers import AutoModelForCausalLM, Trainer

trainer = Trainer(model=AutoModelForCausalLM.from_pretrained("model"))
trainer.train()
metrics = trainer.evaluate()
if trainer.is_world_process_zero():
    print(metrics)
```

## Fix safety
Calling it on all processes and printing on one is safe.

## References
- huggingface/transformers#26724, huggingface/accelerate#2536, FareedKhan-dev/train-llm-from-scratch#32
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.places import at
from truetune.source.calls import Call
from truetune.source.module import Module

OF_TRAINER = frozenset(("evaluate", "predict", "train"))
OF_ACCELERATOR = frozenset(
    ("gather", "gather_for_metrics", "reduce", "wait_for_everyone", "pad_across_processes")
)
OF_TORCH = ("torch.distributed.barrier", "torch.distributed.all_*", "torch.distributed.broadcast*")
WAITS = ("wait_for_everyone",)
"""Several may belong together: one process first, the others behind it"""
ONE = re.compile(
    r"is_(local_)?main_process|is_(world|local)_process_zero|\b(local_)?rank\s*==\s*0|get_rank\(\)\s*==\s*0|"
    r"process_index\s*==\s*0"
)


def _collective_calls(module: Module) -> Iterator[Call]:
    return (call for call in module.all_calls if _is_collective(module, call))


class CollectiveCallOnOneRank(SourceRule):
    code = "TT745"
    severity = "error"
    looks_at = CodePlaces("calls that wait for all processes", _collective_calls)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        waits = [
            call for call in module.all_calls if call.method in WAITS or call.named(*OF_TORCH[:1])
        ]
        for call in _collective_calls(module):
            if len(waits) > 1 and call in waits:
                continue
            guard = _guard(module, call.node)
            if guard is not None:
                yield self.finding(
                    f"{module.text_of(call.node.func)} runs on one process alone, and waits"
                    " for all",
                    "call it on every process, and keep only what follows (printing, saving)"
                    " on one",
                    evidence=[
                        f"the condition in line {module.place(guard)[0]}: {ast.unparse(guard)}"
                    ],
                    cases=[at(module, call.node)],
                )


def _is_collective(module: Module, call: Call) -> bool:
    if call.receiver is None:
        return call.named(*OF_TORCH)
    kinds = module.flow.kinds(call.receiver)
    return ("trainer" in kinds and call.method in OF_TRAINER) or (
        "accelerator" in kinds and call.method in OF_ACCELERATOR
    )


def _guard(module: Module, node: ast.AST) -> ast.expr | None:
    """The condition around it that only one process meets."""
    inner = node
    for parent in module.parents(node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        if isinstance(parent, ast.If) and inner in parent.body:
            text = ast.unparse(parent.test)
            if ONE.search(text) and not re.search(r"\bnot\b|\bor\b|!=", text):
                return parent.test
        inner = parent
    return None
