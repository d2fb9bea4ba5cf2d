"""A script that runs as several processes splits its model over all GPUs in each of them.

## What it does
Looks for `device_map="auto"` (or balanced, sequential) in a file that reads `LOCAL_RANK` or `WORLD_SIZE`, or starts
`torch.distributed` itself. Silent where the map, or the call, stands under a condition on the number of processes, and
where the file ends if there are several.

## Why it is bad
Each process spreads its model over all GPUs: they take each other's memory, layers sit on other processes' devices, and
data parallelism is lost. accelerate raises in some launches, and not in all.

## Example
```python
import os

from transformers import AutoModelForCausalLM, Trainer

rank = int(os.environ["LOCAL_RANK"])
model = AutoModelForCausalLM.from_pretrained("model", device_map="auto")
trainer = Trainer(model=model)
```

## Use instead
```python
import os

from transformers import AutoModelForCausalLM, Trainer

rank = int(os.environ["LOCAL_RANK"])
model = AutoModelForCausalLM.from_pretrained("model", device_map={"": rank})
trainer = Trainer(model=model)
```

## Fix safety
Without `device_map` the trainer places the model itself. `{"": rank}` is for quantized models.

## References
- huggingface/transformers#31557, huggingface/accelerate#2486, QwenLM/Qwen#900, QwenLM/Qwen#833
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.places import at
from truetune.source.module import Module

SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")
PROCESSES = re.compile(
    r"environ[^\n]*(LOCAL_RANK|WORLD_SIZE)|getenv[^\n]*(LOCAL_RANK|WORLD_SIZE)|init_process_group|DistributedDataParallel"
)
COUNTS = re.compile(
    r"WORLD_SIZE|LOCAL_RANK|get_world_size|num_processes|is_initialized|local_rank|distributed_type", re.I
)
"""What says how many processes there are, or whether there are several"""
DEPTH = 4
"""Names that are followed from a condition: ddp, world_size, os.environ"""
ENDS = ("exit", "sys.exit", "os._exit", "quit")


class DeviceMapInADistributedScript(SourceRule):
    code = "TT757"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        sign = PROCESSES.search(module.text)
        trains = any({"trainer", "optimizer"} & module.flow.kinds(call.node) for call in module.all_calls)
        if sign is None or not trains or _refuses_several(module):
            return
        for call in module.all_calls:
            value = call.keywords.get("device_map")
            if value is None or "model" not in module.flow.kinds(call.node) or module.flow.value(value) not in SPREADS:
                continue
            if any(_under_count(module, node) for node in (call.node, *_spellings(module, value))):
                continue
            yield self.finding(
                f'device_map="{module.flow.value(value)}" in a script that runs as several processes',
                'leave device_map out, or give {"": local_rank}',
                evidence=[f"several processes: {sign[0]}"],
                cases=[at(module, call.node)],
            )


def _spellings(module: Module, value: ast.expr) -> Iterator[ast.AST]:
    """Where the name of the map is written."""
    yield value
    yield from (origin.node for origin in module.flow.origins(value))


def _under_count(module: Module, node: ast.AST) -> bool:
    """Does a condition on the number of processes keep this from being reached by several?"""
    inner = node
    for around in module.parents(node):
        if isinstance(around, (ast.If, ast.IfExp)) and inner is not around.test and _counts(module, around.test):
            first = around.body if isinstance(around.body, list) else [around.body]
            if inner not in first or not _several(module, around.test):
                return True
        inner = around
    return False


def _refuses_several(module: Module) -> bool:
    """Does the file raise, or exit, where there is more than one process?"""
    for test in module.nodes(ast.If):
        ends = any(isinstance(node, ast.Raise) or _exits(module, node) for node in test.body)
        if ends and any(_several(module, part) for part in _alternatives(test.test)):
            return True
    return False


def _exits(module: Module, statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and module.flow.name(call.func) in ENDS


def _alternatives(test: ast.expr) -> list[ast.expr]:
    """The parts of `a or b`, each of which is enough; else the test alone."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]


def _several(module: Module, test: ast.expr) -> bool:
    """Is it true for more than one process: `world_size > 1`, `!= 1`, `>= 2`, or a name for that?"""
    origins = module.flow.origins(test) if isinstance(test, ast.Name) else ()
    test = next((origin.node for origin in origins if isinstance(origin.node, ast.Compare)), test)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not _counts(module, test.left):
        return False
    limit = module.flow.value(test.comparators[0])
    more_than_one = isinstance(test.ops[0], (ast.Gt, ast.NotEq)) and limit == 1
    return more_than_one or (isinstance(test.ops[0], ast.GtE) and limit == 2)


def _counts(module: Module, test: ast.AST, depth: int = 0) -> bool:
    """Does it depend on how many processes there are, itself or through the names that it reads?"""
    if COUNTS.search(ast.unparse(test)):
        return True
    if depth == DEPTH:
        return False
    names = (node for node in ast.walk(test) if isinstance(node, (ast.Name, ast.Attribute)))
    origins = (origin.node for name in names for origin in module.flow.origins(name))
    return any(isinstance(node, ast.expr) and _counts(module, node, depth + 1) for node in origins if node is not test)
