"""A script gives vLLM nearly all of the GPU that it trains on.

## What it does
Looks for `vllm.LLM(...)` in a script with a hand-written training loop, or a trainer. It fires if vLLM reserves more
than 0.7 of the GPU (0.9 by default), and nothing moves it to another device, another process, or to sleep.

## Why it is bad
vLLM reserves its share of the whole GPU when it is created, and keeps it. Weights, gradients, optimizer states and
activations must fit into the rest. The start fails ("Free memory on device ... is less than desired GPU memory
utilization"), or the first step runs out of memory.

## Example
```python
import torch
from transformers import AutoModelForCausalLM
from vllm import LLM

model = AutoModelForCausalLM.from_pretrained("model").cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
sampler = LLM("model")
for batch in loader:
    answers = sampler.generate(batch["prompts"])
    loss = policy_loss(model, batch, answers)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM
from vllm import LLM

model = AutoModelForCausalLM.from_pretrained("model").cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
sampler = LLM("model", gpu_memory_utilization=0.3)
for batch in loader:
    answers = sampler.generate(batch["prompts"])
    loss = policy_loss(model, batch, answers)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
vLLM's share must fit the weights once more and the cache of the answers. It generates with the weights that it loaded:
updates of the policy must be copied into it.

## References
- vLLM documentation, engine arguments: `--gpu-memory-utilization`; vllm-project/vllm `LLM`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import MAX_VLLM_SHARE
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import (
    optimizer_steps_with_optimizers,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import spelling_of_variable

DEFAULT_SHARE = 0.9
"""vLLM's `gpu_memory_utilization`"""
ELSEWHERE = re.compile(
    r"CUDA_VISIBLE_DEVICES|set_device|\bray\b|multiprocessing|subprocess|sleep\(|destroy_model_parallel|\bdel \w+|"
    r"device_map|\.to\(|cuda:[1-9]"
)
"""What may part the two: other devices, other processes, or an engine that has been ended before"""
SAME_DEVICE = re.compile(r"\.to\(\s*[\"'](?:cuda|cuda:0)[\"']\s*\)|\.to\(\w+\.device\)")
"""Moves that part nothing"""


def _engines_beside_training(module: Module) -> Iterator[Call]:
    """vLLM's engines in code that trains."""
    if any(True for _ in optimizer_steps_with_optimizers(module)) or any(
        call for call in module.methods("train") if _is_train_of_trainer(module, call)
    ):
        yield from module.calls("vllm.LLM", "vllm.entrypoints.llm.LLM")


def _is_train_of_trainer(module: Module, call: Call) -> bool:
    """Is the call `train` of a trainer, and not the training mode of a model?"""
    return "trainer" in module.flow.types(call.receiver)


class VllmBesideTraining(SourceRule):
    code = "SRC086"
    fault = Fault.GPU_MEMORY_TAKEN_BY_ANOTHER_MODEL
    severity = "warning"
    looks_at = CodePlaces("engines of vLLM in code that trains", _engines_beside_training)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        # Moves to the model's own device are taken out first: they are no sign that the two are apart.
        if any(
            ELSEWHERE.search(SAME_DEVICE.sub("", part.text))
            for part in module.self_and_files_run_together
        ):
            return
        for call in _engines_beside_training(module):
            share_argument = call.argument(-1, "gpu_memory_utilization")
            share = (
                DEFAULT_SHARE
                if call.lacks("gpu_memory_utilization")
                else module.flow.value(share_argument)
            )
            open_ways = {
                "device",
                "enable_sleep_mode",
                "distributed_executor_backend",
            } & call.keywords.keys()
            if (
                not isinstance(share, int | float)
                or share <= MAX_VLLM_SHARE
                or open_ways
                or _may_run_in_another_process(module, call)
            ):
                continue
            yield self.finding(
                f"vLLM reserves {share:.0%} of the GPU that this script trains on"
                f"{' (the default)' if share_argument is None else ''}: the training runs out of memory",
                "set gpu_memory_utilization=0.3 in LLM(...), or run vLLM in a separate process on another GPU",
                cases=[case_of_node(module, call.node)],
            )


def _call_returning_or_keeping_engine(module: Module, made: ast.Call) -> ast.AST:
    """The one call of a helper that gives the engine back, or of the class that keeps it as `self.x`; else the engine's
    own call.
    """
    around = module.scopes.parent.get(made)
    function = module.function_around(made)
    if function is None:
        return made
    is_kept = isinstance(around, ast.Return) or (
        function.name == "__init__"
        and isinstance(around, ast.Assign)
        and spelling_of_variable(around.targets[0]) is not None
    )
    sites = module.flow.calls_of_function_or_class(function) if is_kept else []
    is_always = function.body and module.statement(made) in function.body
    return sites[0] if len(sites) == 1 and is_always else made


def _may_run_in_another_process(module: Module, call: Call) -> bool:
    """Is the engine made in one arm of a condition or in a function, which another run of the
    script may need?
    """
    around = list(module.parents(_call_returning_or_keeping_engine(module, call.node)))
    conditions = (node for node in around if isinstance(node, ast.If | ast.IfExp | ast.Try))
    functions = [
        node for node in around if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    trained_in = {
        id(node)
        for step, _ in optimizer_steps_with_optimizers(module)
        for node in module.parents(step.node)
    }
    is_conditional = any(
        # `if __name__ == "__main__"` is a condition that always holds for a script.
        "__name__" not in ast.unparse(getattr(node, "test", node))
        for node in conditions
    )
    return is_conditional or any(id(function) not in trained_in for function in functions)
