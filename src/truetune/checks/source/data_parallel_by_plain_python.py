"""A Trainer that plain `python` starts on several GPUs falls back to DataParallel.

## What it does
Looks for a script with a Trainer of transformers or TRL that a shell script or job file beside it starts with plain
`python`, where `CUDA_VISIBLE_DEVICES` names several GPUs. A model with a device map is left alone: one process shares
it out.

## Why it is bad
With several GPUs in sight of one process, Trainer wraps the model in `torch.nn.DataParallel`: weights are copied to all
GPUs at each step, and logits and losses of all of them are gathered on the first one, which runs out of memory while
the others idle. The batch is as many times larger as there are GPUs.

## Example
```python
# run.sh: CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py
from transformers import AutoModelForCausalLM, Trainer

model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(model=model, train_dataset=rows)
trainer.train()
```

## Use instead
```python
# run.sh: CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node 4 train.py
from transformers import AutoModelForCausalLM, Trainer

model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(model=model, train_dataset=rows)
trainer.train()
```

## Fix safety
The effective batch stays the same with as many processes as there are GPUs.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html (use DistributedDataParallel)
- huggingface/transformers documentation, "Distributed training"
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.code_places import calls_of
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.places import at
from truetune.parsing.files import read_bounded
from truetune.parsing.limits import SETTINGS, InputLimitError
from truetune.source.module import Module

TRAINERS = ("transformers.*Trainer", "trl.*Trainer")
JOBS = (".sh", ".bash", ".slurm", ".sbatch")
VISIBLE = re.compile(r"CUDA_VISIBLE_DEVICES=[\"']?(\d+(?:,\d+)+)")
PYTHON = r"(?:^|[\s;&|(])(?:\S*/)?python[\d.]*\s+(?:-[uOB]\s+)*(?:\S*/)?{name}\b"
"""`python train.py`; with `-m torch.distributed.run` before it, or torchrun, it is no plain start"""


class DataParallelByPlainPython(SourceRule):
    code = "TT783"
    severity = "warning"
    looks_at = calls_of("trainers", *TRAINERS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        trainer = next(iter(module.calls(*TRAINERS)), None)
        if trainer is None or _places_by_itself(module):
            return
        start = next(_plain_starts(Path(module.path)), None)
        if start is not None:
            gpus = start[0]
            yield self.finding(
                f"plain python starts this Trainer with {gpus} GPUs in sight: it wraps the model in"
                " DataParallel, which gathers all logits on the first GPU",
                f"start it with torchrun --nproc_per_node {gpus} or accelerate launch, or set"
                " CUDA_VISIBLE_DEVICES=0",
                cases=[start[1], at(module, trainer.node)],
            )


def _places_by_itself(module: Module) -> bool:
    """Does the script choose its GPUs, or share its model out over them?"""
    chooses = any(node.value == "CUDA_VISIBLE_DEVICES" for node in module.nodes(ast.Constant))
    return chooses or any("device_map" in call.keywords for call in module.all_calls)


def _plain_starts(script: Path) -> Iterator[tuple[int, Case]]:
    """Commands beside a script that start it with plain python on several GPUs: how many, and where."""
    start = re.compile(PYTHON.format(name=re.escape(script.name)))
    for folder in list(script.absolute().parents)[:2]:
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            if file.suffix not in JOBS:
                continue
            visible = 0
            for number, line in enumerate(_lines(file), 1):
                given = VISIBLE.search(line)
                of_line = len(given[1].split(",")) if given is not None else visible
                if given is not None and ("export" in line or not start.search(line)):
                    visible = of_line
                if of_line > 1 and start.search(line) and not line.lstrip().startswith("#"):
                    yield of_line, Case(line.strip(), file=str(file), line=number)


def _lines(file: Path) -> list[str]:
    """The lines of a file; none where it can not be read."""
    try:
        text = read_bounded(file, SETTINGS).decode("utf-8", "replace")
    except (OSError, InputLimitError):
        return []
    return text.splitlines()
