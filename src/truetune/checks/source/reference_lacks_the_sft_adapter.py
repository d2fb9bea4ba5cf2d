"""A preference loss uses the plain base model as its reference, but the policy starts from a trained adapter.

## What it does
Looks at loops with a hand-written preference loss (`logsigmoid`) that load an adapter to train it further
(`PeftModel.from_pretrained(..., is_trainable=True)`) and compute the reference under `disable_adapter()`. It also looks
at TRL's trainers of releases that do the same themselves, if a file pins one: DPO, KTO and BCO, and, with a KL term
(`beta` above 0), GRPO and RLOO before 0.27. It does not fire if the adapter is merged first, if a second copy or
adapter is the reference, if the script makes a new adapter too, or if the adapter's path says that it comes from a
preference or reward run.

## Why it is bad
With the adapter off, the model is the base before SFT. The rewards at the first step are not 0 but contain all that SFT
taught, and the loss pulls the policy back to the base. In GRPO and RLOO the KL is far from 0 at the first step.

## Example
```python
import torch
from peft import PeftModel
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3")
model = PeftModel.from_pretrained(base, "out/sft-adapter", is_trainable=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-6)
for batch in pairs:
    with torch.no_grad(), model.disable_adapter():
        ref_chosen, ref_rejected = logps(model, batch)
    chosen, rejected = logps(model, batch)
    loss = -logsigmoid(0.1 * ((chosen - ref_chosen) - (rejected - ref_rejected))).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Use instead
```python
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3")
merged = PeftModel.from_pretrained(base, "out/sft-adapter").merge_and_unload()
model = get_peft_model(merged, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-6)
for batch in pairs:
    with torch.no_grad(), model.disable_adapter():
        ref_chosen, ref_rejected = logps(model, batch)
    chosen, rejected = logps(model, batch)
    loss = -logsigmoid(0.1 * ((chosen - ref_chosen) - (rejected - ref_rejected))).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
There is no automatic fix: merging makes new weights, and the new adapter then belongs to them. A second, frozen adapter
(`model.load_adapter(path, "reference")`, `set_adapter`) keeps the base as it is. It is not a fault if this adapter
comes from the same preference run, which is continued.

## References
- huggingface/trl#1193, huggingface/trl#3194 (GRPO; huggingface/trl#4723 copies the adapter)
- huggingface/trl documentation, "DPO Trainer" (reference model considerations with PEFT)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.compare_reference_model_with_policy import (
    LOG_SIGMOIDS,
    PREFERENCE_TRAINERS,
)
from truetune.checks.source.evidence.models_giving_logprobs_in_own_loop import REFERENCE
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LOADS = ("peft.PeftModel*.from_pretrained", "peft.AutoPeftModel*.from_pretrained")
OFF = ("disable_adapter", "disable_adapters", "disable_adapter_layers")
OTHER_WAYS = ("merge_and_unload", "set_adapter", "add_adapter", "unload", "load_adapter")
"""Methods that give the reference other weights: a merged base, or an adapter of its own"""
PREFERENCE_RUN = re.compile(
    r"dpo|kto|orpo|ipo|simpo|pref|rlhf|grpo|rloo|ppo|checkpoint-\d|resume|last", re.I
)
"""Paths of adapters that such a run has saved, and that are continued"""
TRL_COPIES_SINCE = "0.24.0"
"""Releases before it switch the adapter off for the reference; later ones may copy it"""
POLICY_TRAINERS = ("trl.*GRPOTrainer", "trl.*RLOOTrainer")
POLICY_TRAINERS_COPY_SINCE = "0.27.0"
"""The first release with huggingface/trl#4723"""


def _loads_of_trained_adapters(module: Module) -> Iterator[Call]:
    """The calls that load an adapter to train it on."""
    for call in module.calls(*LOADS):
        if module.flow.value(call.keywords.get("is_trainable")) is True:
            yield call


class ReferenceLacksTheSftAdapter(SourceRule):
    code = "SRC215"
    fault = Fault.REFERENCE_IS_NOT_THE_START
    symptoms = ("dpo-without-effect",)
    severity = "warning"
    looks_at = CodePlaces("adapters that are loaded to be trained on", _loads_of_trained_adapters)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        loads = list(_loads_of_trained_adapters(module))
        if (
            len(loads) != 1
            or _has_other_reference(module)
            or _is_path_of_preference_run(module, loads[0])
        ):
            return
        switch = _reference_without_adapter(module)
        if switch is not None:
            yield self._finding_on_adapter(loads[0], switch, "disable_adapter() gives")
            return
        trainer = next(
            (c for c in module.calls(*PREFERENCE_TRAINERS) if _trainer_has_no_reference(c)), None
        )
        if trainer is not None and module.pins.is_release_surely_before("trl", TRL_COPIES_SINCE):
            yield self._finding_on_adapter(loads[0], trainer, "without ref_model the trainer takes")
        elif module.pins.is_release_surely_before("trl", POLICY_TRAINERS_COPY_SINCE):
            for trainer in module.calls(*POLICY_TRAINERS):
                if _penalises_kl_to_disabled_adapter(module, trainer):
                    yield self._finding_on_adapter(loads[0], trainer, "for its KL term TRL takes")

    def _finding_on_adapter(self, load: Call, place: Call, what: str) -> Finding:
        """The finding on an adapter, and the place that gives the reference."""
        module = self.subject
        return self.finding(
            f"the reference is the base without the SFT adapter: {what} it, but the policy starts from a trained"
            " adapter, so the loss pulls it back to the base",
            "merge the adapter first (merge_and_unload) and put a new one on the merged model, or load the adapter a"
            " second time as a frozen reference: model.load_adapter(PATH, 'reference'), and"
            " model.set_adapter('reference') for its pass",
            evidence=[
                "the rewards of a preference loss are then not 0 at the first step, nor is its loss ln 2 = 0.693; the"
                " KL of GRPO is far from 0"
            ],
            cases=[case_of_node(module, load.node), case_of_node(module, place.node)],
        )


def _has_other_reference(module: Module) -> bool:
    """Does the script give the reference weights of its own, or begin with a new adapter?"""
    if any(module.methods(*OTHER_WAYS)) or any(
        module.calls("peft.get_peft_model", "copy.deepcopy")
    ):
        return True
    # A second load of an adapter, frozen, is the reference.
    return sum(1 for _ in module.calls(*LOADS)) > 1


def _is_path_of_preference_run(module: Module, load: Call) -> bool:
    """Does the path of the adapter say that a preference run has saved it?"""
    path = load.argument(1, "model_id") or load.argument(0, "pretrained_model_name_or_path")
    value = module.flow.value(path)
    named = value if isinstance(value, str) else ast.unparse(path) if path is not None else ""
    return PREFERENCE_RUN.search(named) is not None and "sft" not in named.lower()


def _reference_without_adapter(module: Module) -> Call | None:
    """The call that switches the adapter off for the reference of a preference loss; None where there is none."""
    if "backward(" not in module.text:
        return None
    if not any(module.calls(*LOG_SIGMOIDS)) and not any(module.methods("logsigmoid")):
        return None
    for call in module.methods(*OFF):
        if any(_names_reference(node) for node in _code_without_adapter(module, call)):
            return call
    return None


def _code_without_adapter(module: Module, call: Call) -> Iterator[ast.AST]:
    """What is computed with the adapter off: the body of its `with`, else the function that the call stands in."""
    for node in module.nodes(ast.With):
        if any(inner is call.node for item in node.items for inner in ast.walk(item)):
            yield from (inner for statement in node.body for inner in ast.walk(statement))
            return
    for function in module.nodes(ast.FunctionDef):
        if any(inner is call.node for inner in ast.walk(function)):
            yield from ast.walk(function)


def _names_reference(node: ast.AST) -> bool:
    """Is it a name of a reference?"""
    name = (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else ""
    )
    return REFERENCE.search(name) is not None


def _trainer_has_no_reference(trainer: Call) -> bool:
    """Does a trainer get no reference, nor the name of an adapter that is one?"""
    reference = trainer.argument(1, "ref_model")
    is_none = reference is None or (isinstance(reference, ast.Constant) and reference.value is None)
    return is_none and not trainer.open


def _penalises_kl_to_disabled_adapter(module: Module, trainer: Call) -> bool:
    """Does a trainer of policies get a KL term by its settings, and no new adapter?"""
    if trainer.open or trainer.keywords.get("peft_config") is not None:
        return False
    settings = module.flow.producing_call(trainer.keywords.get("args"))
    beta = module.flow.value(settings.keywords.get("beta")) if settings is not None else None
    return isinstance(beta, int | float) and beta > 0
