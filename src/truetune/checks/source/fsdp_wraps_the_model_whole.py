"""A script wraps its model in FSDP as one unit.

## What it does
Looks for `FullyShardedDataParallel(model)` without `auto_wrap_policy`, and for `fully_shard(model)`, in scripts that
wrap nothing else: no layer in a loop, no `wrap()` or `enable_wrap()`. It also reports the `sharding_strategy` NO_SHARD,
which shards nothing. Not reported: a strategy that keeps weights whole on purpose (SHARD_GRAD_OP), models below a
billion parameters by their name, and calls with unknown arguments.

## Why it is bad
FSDP gathers a whole unit for its forward and backward pass, and builds its whole gradient before it is split. If the
unit is the model, each GPU needs room for all weights and all gradients, as if nothing were sharded, and no GPU
computes while they are gathered.

## Example
```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
model = FSDP(model, device_id=local_rank)
```

## Use instead
```python
import functools

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
layer_class = type(model.model.layers[0])
policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={layer_class})
model = FSDP(model, device_id=local_rank, auto_wrap_policy=policy)
```

## Fix safety
Safe: it decides how weights are grouped, not what is learned. Checkpoints of shards change their layout.

## References
- torch/distributed/fsdp/fully_sharded_data_parallel.py, torch/distributed/fsdp/_fully_shard
- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.trace_answering_models_to_load import (
    billions_of_parameters_in_name,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

FIRST_VERSION = "torch.*.FullyShardedDataParallel"
SECOND_VERSION = "torch.*.fully_shard"
PARTLY_WRAPPED = ("enable_wrap", "wrap(", "auto_wrap(", "apply_fsdp", "parallelize")
"""Words of code that wraps parts of a model by other means"""
STRATEGY_PLACE, POLICY_PLACE = 2, 4
"""Of the arguments of FullyShardedDataParallel: module, process_group, sharding_strategy, cpu_offload, policy"""
MIN_BILLIONS = 1.0
"""Parameters from which a whole model matters on a GPU. Chosen, not measured"""


def _wrapping_calls(module: Module) -> Iterator[Call]:
    """The calls that wrap something in FSDP."""
    return module.calls(FIRST_VERSION, SECOND_VERSION)


class FsdpWrapsTheModelWhole(SourceRule):
    code = "SRC332"
    fault = Fault.FSDP_DOES_NOT_SHARD_LAYERS
    symptoms = ("out-of-memory", "several-gpus")
    severity = "warning"
    stability = "preview"
    looks_at = CodePlaces("calls that wrap in FSDP", _wrapping_calls)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        calls = list(_wrapping_calls(module))
        # A second call wraps layers, or belongs to another way through the script.
        if len(calls) != 1 or not _wraps_large_model_outside_loops(module, calls[0]):
            return
        (call,) = calls
        strategy = _sharding_strategy_name(module, call)
        if strategy.endswith("NO_SHARD"):
            yield self.finding(
                "FSDP shards nothing (NO_SHARD): each GPU stores all weights, gradients and optimizer states, as with"
                " DDP",
                "use ShardingStrategy.FULL_SHARD, with an auto_wrap_policy for the layers",
                cases=[case_of_node(module, call.node)],
            )
        elif _wraps_no_part_separately(module, call) and strategy in (
            "",
            "FULL_SHARD",
            "HYBRID_SHARD",
        ):
            yield self.finding(
                "FSDP wraps the whole model as one unit: each GPU needs memory for all weights and gradients at"
                " once, as if"
                " nothing were sharded",
                "shard each layer before the model: for layer in model.model.layers: fully_shard(layer)"
                if call.named(SECOND_VERSION)
                else "add auto_wrap_policy=functools.partial(transformer_auto_wrap_policy,"
                " transformer_layer_cls={type(model.model.layers[0])})",
                cases=[case_of_node(module, call.node)],
            )


def _wraps_large_model_outside_loops(module: Module, call: Call) -> bool:
    """Is a language model wrapped, in no loop, and none that is small by its name?"""
    wrapped = call.argument(0, "module")
    if wrapped is None or call.open or "model" not in module.flow.types(wrapped):
        return False
    if any(isinstance(parent, ast.For | ast.While) for parent in module.parents(call.node)):
        return False
    loads = module.calls("*.from_pretrained")
    names = [load.argument(0, "pretrained_model_name_or_path") for load in loads]
    sizes = [
        size for name in names if (size := billions_of_parameters_in_name(module, name)) is not None
    ]
    return not sizes or max(sizes) >= MIN_BILLIONS


def _sharding_strategy_name(module: Module, call: Call) -> str:
    """The strategy by its name; empty where none is given."""
    sharding_strategy_argument = call.argument(STRATEGY_PLACE, "sharding_strategy")
    if sharding_strategy_argument is None or call.named(SECOND_VERSION):
        return ""
    return (
        module.flow.name(sharding_strategy_argument) or ast.unparse(sharding_strategy_argument)
    ).rpartition(".")[2]


def _wraps_no_part_separately(module: Module, call: Call) -> bool:
    """Is nothing of the model wrapped by itself?"""
    if any(word in module.text for word in PARTLY_WRAPPED):
        return False
    if call.named(SECOND_VERSION):
        return True
    policy = call.argument(POLICY_PLACE, "auto_wrap_policy")
    return policy is None or module.flow.value(policy) is None
