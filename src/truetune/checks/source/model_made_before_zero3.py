"""A model is loaded before the arguments that enable ZeRO-3: every process loads all of its weights.

## What it does
Looks for `from_pretrained` that runs before `TrainingArguments(deepspeed=...)`, `SFTConfig(...)` or a similar class
whose DeepSpeed configuration has ZeRO stage 3, in a script without `HfDeepSpeedConfig`.

## Why it is bad
transformers learns about ZeRO-3 when the arguments are created, and only then loads weights in shards. A model that was
loaded before is complete in the memory of each process. Eight processes (one per GPU) hold 8 x 64 GB of a 32B model in
CPU memory, and may run out of it, although the shards would fit.

## Example
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("model")
zero = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}
args = TrainingArguments(output_dir="out", deepspeed={"zero_optimization": zero})
trainer = Trainer(model=model, args=args)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

zero = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}
args = TrainingArguments(output_dir="out", deepspeed={"zero_optimization": zero})
model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(model=model, args=args)
```

## Fix safety
Safe: only the order of the two calls changes. Keep the arguments in a variable until the training has ended.

## References
- https://huggingface.co/docs/transformers/deepspeed ("ZeRO-3 and large models": arguments before the model)
- transformers/integrations/deepspeed.py: `is_deepspeed_zero3_enabled`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.does_script_train_sharded_weights import sharding_of_script
from truetune.checks.source.evidence.which_place_surely_runs_first import (
    call_routes_to,
    route_runs_only_before,
)
from truetune.settings.stacks.find_who_reads_config_or_starts_script import commands_that_launch
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LOADS = ("transformers.AutoModel*.from_pretrained", "transformers.*For*LM.from_pretrained")


def _trainer_arguments_naming_deepspeed(module: Module) -> Iterator[Call]:
    """Arguments of a trainer that name a DeepSpeed configuration."""
    for call in module.all_calls:
        if "deepspeed" in call.keywords and "arguments" in module.flow.types(call.node):
            yield call


class ModelMadeBeforeZero3(SourceRule):
    code = "SRC103"
    fault = Fault.HOST_MEMORY_TOO_SMALL
    severity = "warning"
    looks_at = CodePlaces(
        "trainer's arguments with a DeepSpeed configuration", _trainer_arguments_naming_deepspeed
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        arguments = list(_trainer_arguments_naming_deepspeed(module))
        # These objects, made before the load, are what tells transformers that ZeRO-3 is on.
        if len(arguments) != 1 or module.mentions(
            "HfDeepSpeedConfig", "HfTrainerDeepSpeedConfig", "zero.Init"
        ):
            return
        if any("accelerate" in command for command in commands_that_launch(Path(module.path))):
            return  # accelerate tells transformers of ZeRO-3 before the script runs
        sharding = sharding_of_script(module)
        if sharding is None or sharding.how != "ZeRO-3" or not sharding.certain:
            return
        argument_routes = call_routes_to(module, arguments[0].node)
        for call in module.calls(*LOADS):
            early = call_routes_to(module, call.node)
            # On every way: a load that one branch runs later is in order there.
            if all(
                route_runs_only_before(module, one, late)
                for one in early
                for late in argument_routes
            ):
                yield self.finding(
                    "every process loads the whole model: from_pretrained runs before TrainingArguments, so"
                    " transformers does not know yet that ZeRO-3 is on",
                    "create the training arguments first, then load the model",
                    cases=[
                        case_of_node(module, call.node),
                        case_of_node(module, arguments[0].node),
                    ],
                )
