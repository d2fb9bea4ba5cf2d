"""A loaded adapter is frozen when it is given to training.

## What it does
It follows `PeftModel.from_pretrained(...)` without `is_trainable=True` into a trainer or an optimizer, also through
`merge_and_unload()`: the merged model stays frozen. It also reports: `load_adapter` of transformers, which freezes what
it loads; `prepare_model_for_kbit_training` after `get_peft_model`, which freezes the adapter with its base; a loop that
freezes all parameters, or all whose names fail a test that no LoRA weight can pass; and `inference_mode=True` in the
settings of an adapter given to `get_peft_model`.

## Why it is bad
peft loads adapters for inference by default. No parameter is trained and the loss does not change, but the run ends
without an error.

## Example
```python
from peft import PeftModel
from transformers import AutoModelForCausalLM
from trl import SFTTrainer

model = AutoModelForCausalLM.from_pretrained("some/model")
model = PeftModel.from_pretrained(model, "outputs/stage-1")
SFTTrainer(model=model, train_dataset=rows).train()
```

## Use instead
```python
from peft import PeftModel
from transformers import AutoModelForCausalLM
from trl import SFTTrainer

model = AutoModelForCausalLM.from_pretrained("some/model")
model = PeftModel.from_pretrained(model, "outputs/stage-1", is_trainable=True)
SFTTrainer(model=model, train_dataset=rows).train()
```

## Fix safety
Safe: the adapter's weights are trained, as was intended.

## References
- huggingface/peft#282, huggingface/peft#1410, huggingface/trl#6700, huggingface/trl#3926
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.adapters_frozen_by_names import loops_that_freeze_adapters
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.optimizers_holding_wrong_weights import owners_of_parameters
from truetune.checks.source.evidence.script_arguments_from_settings_files import (
    surely_lacks_argument,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import set_keyword
from truetune.source.parsed_source_file import Module

KBIT_PREPARATIONS = (
    "peft.*prepare_model_for_kbit_training",
    "peft.*prepare_model_for_int8_training",
)
ADAPTER_WRAPPERS = ("peft.get_peft_model",)
ADAPTER_LOADS = ("peft.PeftModel*.from_pretrained", "peft.AutoPeftModel*.from_pretrained")


def _calls_making_or_loading_adapters(module: Module) -> Iterator[Call]:
    """The calls that make an adapter, or load one, by peft or into a model of transformers."""
    yield from module.calls(*ADAPTER_LOADS, *ADAPTER_WRAPPERS)
    yield from module.methods("load_adapter")


class AdapterLoadedFrozen(SourceRule):
    code = "SRC016"
    fault = Fault.NO_WEIGHT_TRAINED
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces("adapters that are made or loaded", _calls_making_or_loading_adapters)

    def findings(self) -> Iterator[Finding]:
        """Findings on adapters that are trained though they were loaded or made frozen."""
        module = self.subject
        yield from self._findings_on_kbit_preparation()
        yield from self._findings_on_freezing_loops()
        yield from self._findings_on_load_adapter_calls()
        yield from self._findings_on_inference_mode()
        if not any(map(_may_unfreeze_or_add_adapter, module.self_and_files_run_together)):
            yield from self._findings_on_frozen_loads()

    def _findings_on_frozen_loads(self) -> Iterator[Finding]:
        """Findings on adapters that peft loads frozen, and that are trained, by themselves or
        merged.
        """
        module = self.subject
        loads = {
            call.node: call
            for call in module.calls(*ADAPTER_LOADS)
            if _call_loads_adapter_frozen(module, call)
        }
        trained = list(_trainers_and_optimizers_with_models(module)) if loads else []
        for node, call in loads.items():
            merges = _merges_or_unloads_of(module, node)
            merged = next(
                (
                    user
                    for user, model in trained
                    if _is_merged_model_trained_without_adapter(module, user, model, merges)
                ),
                None,
            )
            user = next(
                (user for user, model in trained if _may_be_result_of(module, model, node)), None
            )
            if merged is not None:
                yield self._finding_on_trained_merged_model(node, merged, merges)
            elif user is not None and not _may_get_merged_model_with_adapter(module, user, merges):
                yield self._finding_on_trained_load(call, user)

    def _findings_on_load_adapter_calls(self) -> Iterator[Finding]:
        """Findings on adapters that `load_adapter` of transformers puts into a model which is
        trained then.
        """
        module = self.subject
        loads = list(_load_adapter_calls_without_is_trainable(module))
        if not loads or any(
            map(_sets_gradients_or_active_adapter, module.self_and_files_run_together)
        ):
            return
        trained = list(_trainers_and_optimizers_with_models(module))
        for call in loads:
            held = module.flow.origins(call.receiver) if call.receiver is not None else ()
            users = (user for user, model in trained if module.flow.origins(model) == held)
            user = next(users, None)
            if user is not None and len(held) == 1:
                yield self._finding_on_trained_load(call, user)

    def _finding_on_trained_load(self, load: Call, user: ast.AST) -> Finding:
        """The finding on an adapter that is trained as it was loaded."""
        module = self.subject
        return self.finding(
            "the adapter is loaded frozen and then trained: no parameter will change",
            "set is_trainable=True in this call",
            evidence=["is_trainable is False by default"],
            cases=[case_of_node(module, load.node), case_of_node(module, user)],
            fix=fix_of_changes(module, set_keyword(module, load, "is_trainable", "True")),
        )

    def _findings_on_inference_mode(self) -> Iterator[Finding]:
        """Findings on adapters whose settings say `inference_mode=True`, and that are trained."""
        module = self.subject
        if any(map(_sets_gradients_or_active_adapter, module.self_and_files_run_together)):
            return
        trained = list(_trainers_and_optimizers_with_models(module))
        for call in module.calls(*ADAPTER_WRAPPERS, "trl.*Trainer"):
            config = module.flow.producing_call(call.argument(1, "peft_config"))
            if call.named("trl.*Trainer"):
                config = module.flow.producing_call(call.keywords.get("peft_config"))
                users: list[ast.AST] = [call.node]
            else:
                users = [
                    user for user, model in trained if _may_be_result_of(module, model, call.node)
                ]
            if config is None or not users or not config.named("peft.*Config"):
                continue
            mode = config.keywords.get("inference_mode")
            if mode is not None and module.flow.value(mode) is True:
                yield self.finding(
                    "the adapter is created with inference_mode=True, which freezes its weights: nothing is trained",
                    "remove inference_mode=True from the adapter's settings",
                    cases=[case_of_node(module, config.node), case_of_node(module, users[0])],
                )

    def _findings_on_kbit_preparation(self) -> Iterator[Finding]:
        """Findings on adapters that the preparation for k-bit training freezes with their base."""
        module = self.subject
        adapters = {call.node: call for call in module.calls(*ADAPTER_LOADS, *ADAPTER_WRAPPERS)}
        if _may_unfreeze_or_add_adapter(module) or any(module.methods("load_adapter")):
            return
        for call in module.calls(*KBIT_PREPARATIONS):
            model = call.argument(0, "model")
            origins = module.flow.origins(model) if model is not None else ()
            adapter = next((o.node for o in origins if o.node in adapters), None)
            if len(origins) == 1 and adapter is not None:
                yield self.finding(
                    "prepare_model_for_kbit_training after get_peft_model freezes all weights, including the"
                    " adapter's: nothing is trained",
                    "call prepare_model_for_kbit_training before get_peft_model",
                    evidence=["it sets requires_grad to False on every parameter of the model"],
                    cases=[case_of_node(module, call.node), case_of_node(module, adapter)],
                )

    def _findings_on_freezing_loops(self) -> Iterator[Finding]:
        """Findings on adapters whose parameters a loop over all parameters freezes: each, or those
        whose names do not fit.
        """
        module = self.subject
        adapters = {call.node for call in module.calls(*ADAPTER_LOADS, *ADAPTER_WRAPPERS)}
        if not adapters or module.mentions("modules_to_save", "trainable_token_indices"):
            return
        for freezing_loop in loops_that_freeze_adapters(module):
            origins = module.flow.origins(freezing_loop.model)
            adapter = next((one.node for one in origins if one.node in adapters), None)
            if len(origins) != 1 or adapter is None:
                continue
            # Weights of other adapters than LoRA have other names.
            if freezing_loop.has_test and not _puts_lora_on_model(module, adapter):
                continue
            chosen = (
                "the name of no LoRA weight passes the loop's test, so the loop freezes them all"
            )
            yield self.finding(
                f"after get_peft_model {chosen}: nothing of the adapter is trained"
                if freezing_loop.has_test
                else "all parameters are frozen after get_peft_model, including the adapter's: nothing is trained",
                "delete the loop (get_peft_model freezes the base itself), or skip names that contain lora_",
                cases=[case_of_node(module, freezing_loop.loop), case_of_node(module, adapter)],
            )

    def _finding_on_trained_merged_model(
        self, load: ast.AST, user: ast.AST, merges: list[ast.Call]
    ) -> Finding:
        """The finding on an adapter that is loaded frozen, merged and then given to a training."""
        return self.finding(
            "the adapter is loaded frozen, merged and then trained: no parameter will change",
            "give the trainer a peft_config to train a new adapter, or call model.requires_grad_(True) on the merged"
            " model to train all its weights",
            evidence=["the base weights that peft froze stay frozen after merge_and_unload"],
            cases=[case_of_node(self.subject, node) for node in (load, user, merges[0])],
        )


def _puts_lora_on_model(module: Module, adapter: ast.AST) -> bool:
    """Does `get_peft_model` surely put a LoRA on the model?"""
    call = module.flow.call(adapter) if isinstance(adapter, ast.Call) else None
    if call is None or not call.named(*ADAPTER_WRAPPERS):
        return False
    config = module.flow.producing_call(call.argument(1, "peft_config"))
    return config is not None and config.named("peft.LoraConfig")


def _merges_or_unloads_of(module: Module, load: ast.AST) -> list[ast.Call]:
    """The calls that merge the loaded adapter into its base, or take it off."""
    return [
        call.node
        for call in module.methods("merge_and_unload", "unload")
        if call.receiver is not None and _may_be_result_of(module, call.receiver, load)
    ]


def _is_merged_model_trained_without_adapter(
    module: Module, user: ast.AST, expression: ast.expr, merges: list[ast.Call]
) -> bool:
    """Is it the merged model that is trained, without another adapter?"""
    adapted = isinstance(user, ast.Call) and not module.flow.call(user).lacks("peft_config")
    return not adapted and any(_may_be_result_of(module, expression, merge) for merge in merges)


def _may_get_merged_model_with_adapter(
    module: Module, user: ast.AST, merges: list[ast.Call]
) -> bool:
    """Does the trainer get the merged model with an adapter of its own? The name stood for the loaded one before."""
    config = (
        module.flow.call(user).keywords.get("peft_config") if isinstance(user, ast.Call) else None
    )
    return config is not None and any(merge.lineno < getattr(user, "lineno", 0) for merge in merges)


def _call_loads_adapter_frozen(module: Module, call: Call) -> bool:
    """Does a call load an adapter without `is_trainable`?"""
    return _lacks_is_trainable(module, call, 3)


def _lacks_is_trainable(module: Module, call: Call, position: int) -> bool:
    """Is `is_trainable` left out, or False?"""
    is_trainable_argument = call.argument(position, "is_trainable")
    if is_trainable_argument is None:
        by_position = 0 <= position < len(call.args)
        return not by_position and surely_lacks_argument(module, call, "is_trainable")
    return module.flow.value(is_trainable_argument) is False


def _may_unfreeze_or_add_adapter(module: Module) -> bool:
    """Does the file switch gradients on by itself, or put another adapter on?"""
    return _sets_gradients_or_active_adapter(module) or any(module.methods("load_adapter"))


def _sets_gradients_or_active_adapter(module: Module) -> bool:
    """Does the file set `requires_grad` to what is not certainly False, or make an adapter the active one?"""
    for node in module.nodes(ast.Assign):
        is_switch = any(
            isinstance(target, ast.Attribute) and target.attr == "requires_grad"
            for target in node.targets
        )
        if is_switch and module.flow.value(node.value) is not False:
            return True
    for call in module.methods("requires_grad_"):
        requires_grad_argument = call.argument(0, "requires_grad")
        if requires_grad_argument is None or module.flow.value(requires_grad_argument) is not False:
            return True
    return any(module.methods("set_adapter", "add_adapter"))


def _load_adapter_calls_without_is_trainable(module: Module) -> Iterator[Call]:
    """Calls of `load_adapter` on a model of transformers, without `is_trainable`.

    On a model of peft it adds a second adapter, beside the one that is trained.
    """
    for call in module.methods("load_adapter"):
        types = module.flow.types(call.receiver)
        if "model" in types and "peft-model" not in types and _lacks_is_trainable(module, call, -1):
            yield call


def _trainers_and_optimizers_with_models(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The trainers and optimizers of the files that run together, each with its model."""
    for part in module.self_and_files_run_together:
        yield from _running_trainers_with_models(part)
        yield from _optimizers_with_models(part)


def _running_trainers_with_models(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The trainers of which `train` is called, each with the model that it is given."""
    trains = [call.receiver for call in module.methods("train") if call.receiver is not None]
    for call in module.calls("transformers.*Trainer", "trl.*Trainer"):
        model = call.argument(0, "model")
        is_started = any(_may_be_result_of(module, receiver, call.node) for receiver in trains)
        if model is not None and is_started:
            yield call.node, model


def _optimizers_with_models(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The optimizers, each with the model whose `parameters()` it is given."""
    for call in module.all_calls:
        if call.args and "optimizer" in module.flow.types(call.node):
            owners = owners_of_parameters(module, call)
            # Beside an adapter another model may be trained: a head, or a projection.
            if len({ast.unparse(owner) for owner in owners}) == 1:
                yield call.node, owners[0]


def _may_be_result_of(module: Module, expression: ast.expr, node: ast.AST) -> bool:
    """Is the result of this call among what a value may be?"""
    return any(origin.node is node for origin in module.flow.origins(expression))
