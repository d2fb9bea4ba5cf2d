"""The weights of a compiled model are saved with `_orig_mod.` in their names, and other code does not find them.

## What it does
Looks at what `torch.compile(model)` returns: whether an adapter is put on it (`get_peft_model`, a trainer with
`peft_config`), and whether its `state_dict()` is saved. The first is an error, the second a warning. Not reported:
files that strip or name the prefix (also another script of the project that loads files), and `save_pretrained` of the
compiled model, which saves the model inside.

## Why it is bad
The wrapper's state has `_orig_mod.` in each name. An adapter that is saved with it fits no base: peft only warns about
missing keys, and the model answers like the base. A state that is loaded with `strict=False` changes nothing either.

## Example
```python
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
model = torch.compile(model)
model = get_peft_model(model, LoraConfig(r=8))
model.save_pretrained("adapter")
```

## Use instead
```python
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
model = get_peft_model(model, LoraConfig(r=8))
model.compile()
model.save_pretrained("adapter")
```

## Fix safety
`model.compile()` compiles in place and does not change the names (measured with torch 2.13 and peft 0.21). Saved files
with the prefix can be repaired: remove it from each name.

## References
- pytorch/pytorch#101107, eole-nlp/eole#179, mlfoundations/open_clip#639, huggingface/peft#2962
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.prompt_forms import scripts_beside
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

COMPILED_PREFIX = "_orig_mod"
PREFIX_STRIPPERS = (
    COMPILED_PREFIX,
    "unwrap_model(",
    "keep_torch_compile",
    "extract_model_from_parallel",
)
"""Signs that a script takes the prefix away"""
LOADING_CALLS = ("torch.load", "safetensors.torch.load*", "safetensors.safe_open")
SAVING_CALLS = ("torch.save", "safetensors.torch.save*")
ON_ADAPTER = "replace torch.compile(model) by model.compile(), after the adapter is added"
ON_WEIGHTS = (
    "replace torch.compile(model) by model.compile(), or save model._orig_mod.state_dict(); a checkpoint that is"
    " already saved needs no new training: load it as state, and save"
    " {name.removeprefix('_orig_mod.'): weight for name, weight in state.items()}"
)
"""For whole weights; the keys of an adapter have the prefix in their middle"""


def _compile_calls(module: Module) -> Iterator[Call]:
    """Models that are compiled, in place or into a wrapper."""
    yield from module.calls("torch.compile")
    yield from module.methods("compile")


def _compile_calls_making_wrappers(module: Module) -> Iterator[Call]:
    """Models that are compiled into a wrapper."""
    for call in module.calls("torch.compile"):
        if call.args and isinstance(module.scopes.parent.get(call.node), ast.Assign | ast.Return):
            yield call


class CompiledModelSaved(SourceRule):
    code = "SRC026"
    fault = Fault.WEIGHT_NAMES_DO_NOT_MATCH
    severity = "error"
    looks_at = CodePlaces("models that are compiled", _compile_calls)

    def findings(self) -> Iterator[Finding]:
        """Findings on compiled models whose weights get names with `_orig_mod.` that other code does not find."""
        module = self.subject
        compiled = {call.node: call for call in _compile_calls_making_wrappers(module)}
        if not compiled or module.mentions(*PREFIX_STRIPPERS):
            return
        for call in module.calls("peft.get_peft_model", "trl.*Trainer"):
            model = call.argument(0, "model")
            has_adapter = call.named("peft.*") or "peft_config" in call.keywords
            wrapper = _compile_call_on_every_path(module, model, compiled) if has_adapter else None
            if wrapper is not None:
                yield self.finding(
                    "an adapter is added to a compiled model: it is saved with _orig_mod in its names,"
                    " and does not load onto any base",
                    ON_ADAPTER,
                    cases=[case_of_node(module, call.node), case_of_node(module, wrapper)],
                )
        for call in module.methods("state_dict"):
            wrapper = _compile_call_on_every_path(module, call.receiver, compiled)
            if wrapper is None or not _is_state_saved(module, call.node):
                continue
            if not _does_script_beside_strip_prefix(module):
                yield self.finding(
                    "the weights of a compiled model are saved with _orig_mod. before their names: code that loads"
                    " them does not find them",
                    ON_WEIGHTS,
                    severity="warning",
                    cases=[case_of_node(module, call.node), case_of_node(module, wrapper)],
                )


def _compile_call_on_every_path(
    module: Module, model: ast.expr | None, compiled: dict[ast.Call, Call]
) -> ast.Call | None:
    """The call of `torch.compile` that the model comes from on every way."""
    origins = [origin.node for origin in module.flow.origins(model)] if model is not None else []
    made = [node for node in origins if isinstance(node, ast.Call) and node in compiled]
    return made[0] if made and len(made) == len(origins) else None


def _does_script_beside_strip_prefix(module: Module) -> bool:
    """Does another script of the project load states and name the prefix, as one that exports checkpoints does?"""
    return any(
        COMPILED_PREFIX in other.text and any(other.calls(*LOADING_CALLS))
        for other in scripts_beside(module)
    )


def _is_state_saved(module: Module, state: ast.Call) -> bool:
    """Is the state given to a call that saves, itself or in a dictionary?"""
    for call in module.calls(*SAVING_CALLS):
        if call.args:
            for part in ast.walk(call.args[0]):
                origins = module.flow.origins(part) if isinstance(part, ast.expr) else ()
                if any(state in ast.walk(origin.node) for origin in origins):
                    return True
    return False
