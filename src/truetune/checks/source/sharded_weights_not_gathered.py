"""Sharded weights are saved without being gathered: the files contain empty or partial tensors.

## What it does
Looks for weights that are saved from inside their wrapper (`unwrap_model(model).save_pretrained(...)` without
`state_dict=`, `torch.save(engine.module.state_dict(), ...)`, `trainer.model.save_pretrained(...)`) in a script that
trains with ZeRO-3 or FSDP: by its own code, by a command of the project that starts it, or by the configurations of
accelerate and DeepSpeed next to it. It does not fire if the script gathers weights anywhere (`get_state_dict`,
`GatheredParameters`, `summon_full_params`, `full_tensor`), or if one of these configurations does not shard.

## Why it is bad
Under ZeRO-3 and FSDP each process (one per GPU) has only a part of each weight. The model inside the wrapper saves what
this process has: tensors of size 0, or flat parts. The run ends normally, but the file is small, and loading it fails
with a size mismatch of `torch.Size([0])`, or fills the model with random weights.

## Example
```python
import torch
from accelerate import Accelerator, DeepSpeedPlugin
from transformers import AutoModelForCausalLM

accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=3))
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
model, optimizer = accelerator.prepare(model, optimizer)
unwrapped = accelerator.unwrap_model(model)
unwrapped.save_pretrained("out")
```

## Use instead
```python
import torch
from accelerate import Accelerator, DeepSpeedPlugin
from transformers import AutoModelForCausalLM

accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=3))
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
model, optimizer = accelerator.prepare(model, optimizer)
unwrapped = accelerator.unwrap_model(model)
unwrapped.save_pretrained("out", state_dict=accelerator.get_state_dict(model))
```

## Fix safety
`accelerator.get_state_dict(model)` takes the prepared model, and must be called on every process, since it gathers. If
DeepSpeed also saved a folder (`save_checkpoint`), its `zero_to_fp32.py` restores the whole weights from it.

## References
- huggingface/accelerate#2294, huggingface/accelerate#3238, kohya-ss/sd-scripts#1782, huggingface/trl#2670
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.does_script_train_sharded_weights import (
    Sharding,
    sharding_of_script,
)
from truetune.checks.source.evidence.model_calls_bypassing_ddp_or_fsdp import UNWRAPS
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

GATHERS = (
    "get_state_dict",
    "GatheredParameters",
    "summon_full_params",
    "full_tensor",
    "FullStateDictConfig",
    "StateDictOptions",
    "get_model_state_dict",
    "zero_to_fp32",
    "fp32_state_dict_from_zero",
    "consolidated_16bit",
    "save_16bit_model",
    "distributed.checkpoint",
)
"""Names in the ways to gather weights of PyTorch, accelerate and DeepSpeed"""
TRAINERS = ("transformers.*Trainer", "trl.*Trainer")
IN_PLACE = ("torch.*.fully_shard",)
"""It shards the model itself, and returns no wrapper"""


def _saves_or_reads_inside_wrapper(module: Module) -> Iterator[Call]:
    """Calls that save, or read, the weights of a model inside its wrapper."""
    for call in module.methods("save_pretrained", "state_dict"):
        if call.receiver is not None and _is_model_inside_wrapper(module, call.receiver):
            yield call


class ShardedWeightsNotGathered(SourceRule):
    code = "SRC023"
    fault = Fault.SHARDED_WEIGHTS_SAVED_EMPTY
    severity = "error"
    looks_at = CodePlaces(
        "weights that are saved from inside a wrapper", _saves_or_reads_inside_wrapper
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        # A save that is given a state gets the gathered one from the caller.
        saves = [
            call for call in _saves_or_reads_inside_wrapper(module) if call.lacks("state_dict")
        ]
        if not saves or module.mentions(*GATHERS):
            return
        sharding = sharding_of_script(module)
        if sharding is not None:
            for call in saves:
                yield self._finding_on_save(call, sharding)

    def _finding_on_save(self, call: Call, sharding: Sharding) -> Finding:
        """The finding on a save of sharded weights."""
        module = self.subject
        by_trainer = any("trainer" in module.flow.types(one.node) for one in module.all_calls)
        remedy = (
            "save with trainer.save_model(), which gathers the weights"
            if by_trainer
            else "pass state_dict=accelerator.get_state_dict(model) to it, and call get_state_dict on every process"
        )
        return self.finding(
            f"{module.text_of(call.node.func)} saves only the part of the weights that one process has:"
            f" {sharding.how} shards them",
            remedy,
            severity="error" if sharding.certain else "warning",
            evidence=[f"{sharding.how}: {sharding.where}"],
            cases=[case_of_node(module, call.node)],
        )


def _is_model_inside_wrapper(module: Module, model: ast.expr) -> bool:
    """Is it the model inside a wrapper: `unwrap_model(model)`, `engine.module`, or the model of a trainer?"""
    # One of these words stands in every file that unwraps: the others need not be followed.
    if not module.mentions("unwrap_model", ".module", "Trainer", "fully_shard"):
        return False
    for origin in module.flow.origins(model):
        node = origin.node
        if isinstance(node, ast.Attribute):
            is_of_trainer = node.attr == "model" and "trainer" in module.flow.types(node.value)
            if node.attr == "module" or is_of_trainer:
                return True
        elif isinstance(node, ast.Call):
            call = module.flow.call(node)
            if call.method in UNWRAPS or _is_first_argument_of(module, node, *TRAINERS, *IN_PLACE):
                return True
    return False


def _is_first_argument_of(module: Module, result: ast.Call, *patterns: str) -> bool:
    """Is the model that this call made the first argument of such a call?"""
    for call in module.calls(*patterns):
        model = call.argument(0, "model")
        if model is not None and any(one.node is result for one in module.flow.origins(model)):
            return True
    return False
