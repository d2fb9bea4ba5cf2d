"""An adapter is put on another model than the one that it was trained on.

## What it does
Follows the model that `PeftModel.from_pretrained` or `load_adapter` gets, and vLLM's `LLM(model=)` beside a
`LoRARequest`, to the name under which it was loaded, and compares it with `base_model_name_or_path` in the
adapter_config.json of the local adapter: family, generation, size, release, and whether it is instruction-tuned.
Mirrors and quantized copies of one model are the same; a folder of merged weights (`runs/sft-merged`) is another model
than the published one.

## Why it is bad
An adapter is a difference to certain weights. On another release the shapes may fit, and the answers are word salad;
on a model of another size loading stops. On the base in the place of its instruction-tuned model it answers, but worse.

## Example
```python
# adapter/adapter_config.json: {"base_model_name_or_path": "mistralai/Mistral-7B-Instruct-v0.3"}
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-Instruct-v0.1")
model = PeftModel.from_pretrained(base, "adapter")
```

## Use instead
```python
# adapter/adapter_config.json: {"base_model_name_or_path": "mistralai/Mistral-7B-Instruct-v0.3"}
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-Instruct-v0.3")
model = PeftModel.from_pretrained(base, "adapter")
```

## Fix safety
There is no automatic fix: a script may put an adapter on another model on purpose.

## References
- artidoro/qlora#28; peft documentation, `PeftModel.from_pretrained`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.code_places import CodePlaces
from truetune.checks.findings import Case, Finding
from truetune.checks.model_identity import (
    base_of_adapter,
    is_published,
    is_tuned_apart,
    is_tuned_folder,
    other_weights,
)
from truetune.checks.rule import SourceRule
from truetune.checks.source.places import at
from truetune.checks.source.tokenizer_of_another_family import loaded_as
from truetune.source.calls import Call
from truetune.source.module import Module

LOADS = ("peft.PeftModel*.from_pretrained",)
ENGINES = ("vllm.LLM", "vllm.AsyncEngineArgs", "vllm.EngineArgs")
REQUESTS = ("vllm.lora.request.LoRARequest",)


class Adapted(NamedTuple):
    """A model that is given an adapter."""

    call: Call
    model: ast.expr
    """The model, or its name"""
    adapter: ast.expr


def adapted_models(module: Module) -> Iterator[Adapted]:
    """The models of a file that are given an adapter which is loaded."""
    for call in module.calls(*LOADS):
        model, adapter = call.argument(0, "model"), call.argument(1, "model_id")
        if model is not None and adapter is not None:
            yield Adapted(call, model, adapter)
    for call in module.methods("load_adapter"):
        adapter = call.argument(0, "model_id") or call.keywords.get("peft_model_id")
        if call.receiver is not None and adapter is not None:
            yield Adapted(call, call.receiver, adapter)
    engines = [call.argument(0, "model") for call in module.calls(*ENGINES)]
    if len(engines) == 1 and engines[0] is not None:
        for call in module.calls(*REQUESTS):
            adapter = call.argument(2, "lora_path")
            if adapter is not None:
                yield Adapted(call, engines[0], adapter)


class ScriptLoadsAnotherBase(SourceRule):
    code = "SRC080"
    severity = "error"
    looks_at = CodePlaces("models that are given an adapter", adapted_models)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call, model, adapter in adapted_models(module):
            name, folder = name_of_model(module, model), module.flow.value(adapter)
            found = base_of_adapter(folder, module.path) if isinstance(folder, str) else None
            if name is None or found is None:
                continue
            base, file = found
            apart = other_weights(name, base)
            if apart is None and not is_tuned_apart(name, base):
                if is_tuned_folder(base) and is_published(name):
                    yield self._of_folder(call, name, base, file)
                continue
            yield self.finding(
                f"the adapter was trained on {base}, and is put on {name}: "
                + (apart or "one is instruction-tuned, the other is not"),
                f'load the model that it was trained on: from_pretrained("{base}")',
                severity="error" if apart else "warning",
                cases=[
                    at(module, call.node),
                    Case(f"base_model_name_or_path: {base}", file=str(file)),
                ],
            )

    def _of_folder(self, call: Call, name: str, base: str, file: Path) -> Finding:
        """The adapter of a second stage, on the model that the first one began with."""
        return self.finding(
            f"the adapter was trained on the folder {base}, and is put on {name}: what that folder"
            " had been trained to is missing below it",
            f'load what it was trained on: from_pretrained("{base}")',
            severity="warning",
            cases=[
                at(self.subject, call.node),
                Case(f"base_model_name_or_path: {base}", file=str(file)),
            ],
        )


def name_of_model(module: Module, model: ast.expr) -> str | None:
    """The name that a model was loaded under; None where the file does not say one."""
    value = module.flow.value(model)
    return value if isinstance(value, str) else loaded_as(module, model)
