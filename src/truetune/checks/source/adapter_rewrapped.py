"""A model that has an adapter is wrapped into another one.

## What it does
It finds `get_peft_model` on a peft model, and `peft_config` given to a trainer together with a peft model. A model that
is loaded from an adapter's folder (it contains `adapter_config.json`, or the script saves an adapter there) counts as
one with an adapter. TRL before 0.27 (by the project's pins, or by arguments that later releases do not take) ignores
the second adapter or merges the first, so it is not reported there. Nor is code that tests the model first
(`isinstance(model, PeftModel)`, `hasattr(model, "peft_config")`).

## Why it is bad
The first adapter is frozen, merged or lost: stage 1 has no effect on the result, or the loss jumps back to its initial
value. TRL raises an error, peft only warns.

## Example
```python
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("some/model")
model = PeftModel.from_pretrained(base, "outputs/stage-1", is_trainable=True)
model = get_peft_model(model, LoraConfig(r=8))
```

## Use instead
```python
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("some/model")
model = PeftModel.from_pretrained(base, "outputs/stage-1").merge_and_unload()
model = get_peft_model(model, LoraConfig(r=8))
```

## Fix safety
There is no automatic fix, because there are two right ways. To continue the first adapter, delete the second call and
load the first with `is_trainable=True`. To train a new adapter on top, merge the first one, as above.

## References
- huggingface/lerobot#3459, huggingface/trl#4713, huggingface/peft#2390
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.guards_against_second_adapter import (
    is_guarded_against_second_adapter,
)
from truetune.checks.source.evidence.models_loaded_from_adapter_folders import loads_adapter_folder
from truetune.checks.source.evidence.trl_release_of_trainer import reason_for_earlier_release
from truetune.settings.release_windows_of_removed_names import SECOND_ADAPTER_HARMLESS
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module


def _calls_putting_adapter_on_model(module: Module) -> Iterator[Call]:
    """Calls that put an adapter on a model: `get_peft_model`, and trainers with a `peft_config`."""
    for call in module.calls("peft.get_peft_model", "trl.*Trainer"):
        if call.named("peft.*") or "peft_config" in call.keywords:
            yield call


class AdapterRewrapped(SourceRule):
    code = "SRC020"
    fault = Fault.ADAPTER_ON_MODEL_THAT_HAS_IT
    symptoms = ("garbage-output", "loss-does-not-fall", "nothing-is-learned", "dpo-without-effect")
    severity = "error"
    since = "0.1.0"
    looks_at = CodePlaces("adapters that are put on a model", _calls_putting_adapter_on_model)

    def findings(self) -> Iterator[Finding]:
        """Findings on models with an adapter that are given another one."""
        module = self.subject
        for call in _calls_putting_adapter_on_model(module):
            model = call.argument(0, "model")
            config = call.keywords.get("peft_config")
            is_trainer = not call.named("peft.*")
            if model is None or not _surely_puts_adapter_on_model(
                module, call, config, is_trainer=is_trainer
            ):
                continue
            adapted = [origin.node for origin in module.flow.origins(model)]
            if adapted and all(_has_adapter(module, node) for node in adapted):
                cases = [case_of_node(module, call.node), case_of_node(module, adapted[0])]
                if any(loads_adapter_folder(module, node) for node in adapted):
                    yield self._finding_on_model_from_adapter_folder(cases)
                else:
                    yield (
                        self._finding_on_trainer_adding_second_adapter(cases)
                        if is_trainer
                        else self._finding_on_get_peft_model(cases)
                    )

    def _finding_on_trainer_adding_second_adapter(self, cases: list[Case]) -> Finding:
        """The finding on a trainer that is given an adapter and a config."""
        return self.finding(
            "the trainer gets a peft_config and a model that already has an adapter",
            "remove peft_config to train the existing adapter, which must be loaded with is_trainable=True; or"
            " merge that"
            " first: model = model.merge_and_unload()",
            cases=cases,
        )

    def _finding_on_model_from_adapter_folder(self, cases: list[Case]) -> Finding:
        """The finding on a model that is loaded from an adapter's folder, and given another
        adapter.
        """
        return self.finding(
            "the model is loaded from an adapter's folder, so it already has an adapter, and gets a second one",
            "load the base model, then PeftModel.from_pretrained(base, folder, is_trainable=True) to train the"
            " adapter further, or add .merge_and_unload() to that to train a new one on top",
            cases=cases,
        )

    def _finding_on_get_peft_model(self, cases: list[Case]) -> Finding:
        """The finding on `get_peft_model` around a model that has an adapter."""
        return self.finding(
            "get_peft_model wraps a model that already has an adapter",
            "delete this call to train the existing adapter, which must be loaded with is_trainable=True; or merge that"
            " first: model = model.merge_and_unload()",
            cases=cases,
        )


def _has_adapter(module: Module, model: ast.AST) -> bool:
    """Is it a model of peft, or one that is loaded from an adapter's folder?"""
    return "peft-model" in module.flow.types(model) or loads_adapter_folder(module, model)


def _surely_puts_adapter_on_model(
    module: Module, call: Call, config: ast.expr | None, *, is_trainer: bool
) -> bool:
    """Does a call certainly put an adapter on its model, under no condition that asks for one?"""
    if is_trainer:
        if config is not None and not _is_config_certainly_given(module, config):
            return False
        # Releases up to 0.26.2 of TRL leave the second adapter out, or merge the first: nothing is wrapped twice.
        if reason_for_earlier_release(module, call, SECOND_ADAPTER_HARMLESS):
            return False
    if config is not None and not _is_config_set_for_every_call(module, config, call.node):
        return False
    places = (node for node in (call.node, config) if node is not None)
    return not any(is_guarded_against_second_adapter(module, node) for node in places)


def _is_config_certainly_given(module: Module, config: ast.expr) -> bool:
    """Is a config certainly given, and not None on some way?"""
    return all(isinstance(origin.node, ast.Call) for origin in module.flow.origins(config)) and (
        "lora" in module.flow.types(config)
    )


def _is_config_set_for_every_call(module: Module, config: ast.expr, call: ast.Call) -> bool:
    """Is a config that a dictionary holds set wherever the trainer is made, and not in a branch of its own?"""
    statement = module.statement(config)
    if not isinstance(statement, ast.Assign) or call in ast.walk(statement):
        return True
    if not any(isinstance(target, ast.Subscript) for target in statement.targets):
        return True
    arms = module.scopes.arms[statement]
    return module.scopes.arms[call][: len(arms)] == arms
