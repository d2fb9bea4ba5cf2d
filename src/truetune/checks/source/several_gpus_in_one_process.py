"""A script that sees several GPUs is started as one process, and its Trainer falls back to DataParallel.

## What it does
Reads how a file with a Trainer is started: `python train.py` in a shell script, a job or a README of the project that
shows it several GPUs (`CUDA_VISIBLE_DEVICES=0,1`, `--gres=gpu:4`), or a file that shows them to itself. Silent where a
launcher starts it, where Slurm starts it several times, where the model is spread over the GPUs (`device_map="auto"`),
and with unsloth, which takes one.

## Why it is bad
With more than one GPU in one process the Trainer wraps the model in `nn.DataParallel`: at each step the weights are
copied to all GPUs, and the logits of all of them are gathered on the first, which runs out of memory while the others
are half empty. It is slower than one process for each GPU, and the batch is as many times larger as there are GPUs.

## Example
```python
import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"

from transformers import AutoModelForCausalLM, Trainer

trainer = Trainer(model=AutoModelForCausalLM.from_pretrained("model"), train_dataset=rows)
trainer.train()
```

## Use instead
```python
import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0"

from transformers import AutoModelForCausalLM, Trainer

trainer = Trainer(model=AutoModelForCausalLM.from_pretrained("model"), train_dataset=rows)
trainer.train()
```

## Fix safety
One process for each GPU keeps the batch of the run (rows a GPU times GPUs); one GPU makes it smaller: raise the
accumulation. A rate that was tuned for the old batch fits the first way.

## References
- huggingface/transformers#15544, pytorch/pytorch#7138
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.device_map_in_a_distributed_script import SPREADS
from truetune.checks.source.places import at
from truetune.checks.source.plain_starts import PlainStart, plain_starts
from truetune.source.calls import Call
from truetune.source.module import Module
from truetune.source.values import UNKNOWN
from truetune.spec.stacks.readers import launches_of

TRAINERS = ("transformers.*Trainer", "trl.*Trainer")
VARIABLE = "CUDA_VISIBLE_DEVICES"


def _trainers(module: Module) -> Iterator[Call]:
    """Trainers that are made."""
    yield from module.calls(*TRAINERS)


class SeveralGpusInOneProcess(SourceRule):
    code = "SRC031"
    severity = "warning"
    looks_at = CodePlaces("trainers that are made", _trainers)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        trainer = next(_trainers(module), None)
        if trainer is None or module.imports_unsloth or _spreads(module):
            return
        script = Path(module.path)
        shown = _shown_by_itself(module)
        start = next(plain_starts(script), None) if shown is None else None
        if (shown is None and start is None) or any(launches_of(script)):
            return
        yield self._finding(trainer, shown, start)

    def _finding(
        self, trainer: Call, shown: ast.Assign | None, start: PlainStart | None
    ) -> Finding:
        module = self.subject
        gpus = start.gpus if start is not None else _count(module, shown) if shown else 0
        cases = [at(module, trainer.node), *([at(module, shown)] if shown is not None else [])]
        return self.finding(
            f"{gpus} GPUs are shown to one process: the Trainer wraps the model in DataParallel, which"
            " gathers on the first",
            f"start it with `torchrun --nproc-per-node {gpus}`, or show it one GPU with {VARIABLE}=0",
            evidence=[start.where] if start is not None else [],
            cases=cases,
        )


def _spreads(module: Module) -> bool:
    """Is the model spread over the GPUs, kept off them, or is it not known where it goes?"""
    for call in module.all_calls:
        if "device_map" in call.keywords:
            value = module.flow.value(call.keywords["device_map"])
            if value is UNKNOWN or value in SPREADS:
                return True
    return module.mentions("use_cpu=True", "no_cuda=True", "place_model_on_device")


def _shown_by_itself(module: Module) -> ast.Assign | None:
    """`os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"`, where no condition is in the way."""
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        is_variable = isinstance(target, ast.Subscript) and VARIABLE in ast.unparse(target.slice)
        is_sure = not any(isinstance(around, ast.If) for around in module.parents(node))
        if is_variable and is_sure and _count(module, node) > 1:
            return node
    return None


def _count(module: Module, shown: ast.Assign) -> int:
    """How many GPUs the variable is set to."""
    value = module.flow.value(shown.value)
    return len(value.split(",")) if isinstance(value, str) and value.strip() else 0
