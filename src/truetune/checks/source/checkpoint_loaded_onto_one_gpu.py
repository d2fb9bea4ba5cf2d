"""Every process loads a checkpoint onto the GPU that it was saved from.

## What it does
Looks for `torch.load` without `map_location` whose result goes into `load_state_dict`, in a script that starts
`torch.distributed` itself (one process per GPU).

## Why it is bad
`torch.load` puts each tensor on the device where it was when saved: GPU 0 for a file that rank 0 wrote. All processes
load weights and optimizer states there, in addition to the model that trains. GPU 0 runs out of memory when the run is
resumed, although a new run fits.

## Example
```python
import torch

torch.distributed.init_process_group("nccl")
state = torch.load("last.pt")
model.load_state_dict(state["model"])
```

## Use instead
```python
import torch

torch.distributed.init_process_group("nccl")
state = torch.load("last.pt", map_location="cpu")
model.load_state_dict(state["model"])
```

## Fix safety
Safe: `load_state_dict` copies each tensor to the device of its parameter.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.load.html
- https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html (save and load checkpoints)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module


def _tensor_file_loads_by_several_processes(module: Module) -> Iterator[Call]:
    """Files of tensors that a script of several processes loads."""
    if any(
        True
        for part in module.self_and_files_run_together
        for _ in part.calls("*.init_process_group")
    ):
        yield from module.calls("torch.load")


class CheckpointLoadedOntoOneGpu(SourceRule):
    code = "SRC095"
    fault = Fault.PROCESSES_USE_WRONG_GPUS
    severity = "warning"
    looks_at = CodePlaces(
        "files that scripts of several processes load", _tensor_file_loads_by_several_processes
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on checkpoints that every process loads onto the GPU which they were saved from."""
        module = self.subject
        restored = set(_loads_given_to_load_state_dict(module))
        for call in _tensor_file_loads_by_several_processes(module):
            if call.node in restored and call.lacks("map_location", 1):
                yield self.finding(
                    "every process loads the checkpoint onto the GPU that it was saved from (usually GPU 0), which"
                    " runs out of memory when the run is resumed",
                    'add map_location="cpu" to torch.load: load_state_dict copies to the right device',
                    cases=[case_of_node(module, call.node)],
                )


def _loads_given_to_load_state_dict(module: Module) -> Iterator[ast.AST]:
    """The calls whose results are loaded into a model or an optimizer."""
    for call in module.methods("load_state_dict"):
        given = call.argument(0, "state_dict")
        while isinstance(given, ast.Subscript):
            given = given.value
        if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute):
            given = given.func.value if given.func.attr == "get" else given
        made = module.flow.producing_call(given)
        if made is not None:
            yield made.node
