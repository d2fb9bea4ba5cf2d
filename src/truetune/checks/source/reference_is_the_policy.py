"""The reference of a preference loss is the policy itself.

## What it does
Looks at trainers of TRL that get the same object as `model` and `ref_model`, and at loops with a hand-written
preference loss (`logsigmoid`; or `sigmoid`, `softplus` or `kl_div` if a name says that there is a reference). It fires
if the reference's log-probabilities come from the very object that gives those of the policy. It follows names, `self`,
parameters, and calls that return the same object (`.eval()`, `.to()`, `copy.copy`, a repeated call of a function under
`lru_cache`, `get_peft_model`, which puts its layers into the model that it gets). The same call once with and once
without gradients counts, whatever its result is called. It does not fire if the reference is a deep copy or loaded
separately, if its values were computed before the loop, or if adapters are switched off for it.

## Why it is bad
The reference moves with the policy. Both log-ratios are zero at every step: the loss stays at ln 2 = 0.6931, and
nothing keeps the policy near its start.

## Example
```python
import torch
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM

policy = AutoModelForCausalLM.from_pretrained("model")
reference = policy
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)
for batch in pairs:
    chosen, rejected = logps(policy, batch)
    with torch.no_grad():
        ref_chosen, ref_rejected = logps(reference, batch)
    loss = -logsigmoid(0.1 * ((chosen - ref_chosen) - (rejected - ref_rejected))).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Use instead
```python
import copy

import torch
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM

policy = AutoModelForCausalLM.from_pretrained("model")
reference = copy.deepcopy(policy).eval()
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)
for batch in pairs:
    chosen, rejected = logps(policy, batch)
    with torch.no_grad():
        ref_chosen, ref_rejected = logps(reference, batch)
    loss = -logsigmoid(0.1 * ((chosen - ref_chosen) - (rejected - ref_rejected))).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
There is no automatic fix: a copy takes memory for a second model. With LoRA, `with policy.disable_adapter():` gives the
reference without a copy. The policy must be trained again.

## References
- eric-mitchell/direct-preference-optimization, huggingface/trl `DPOTrainer`, which refuses one object for both
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.compare_reference_model_with_policy import (
    PREFERENCE_TRAINERS,
    ReferenceIsPolicy,
    references_that_are_the_policy,
)
from truetune.checks.source.evidence.models_giving_logprobs_in_own_loop import (
    ModelUse,
    are_one_model_object,
    model_uses,
    run_in_same_pass,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LOG_SIGMOIDS = ("torch.nn.functional.logsigmoid", "torch.nn.LogSigmoid")
OTHER_LOSSES = (
    "torch.sigmoid",
    "torch.nn.functional.sigmoid",
    "torch.nn.functional.softplus",
    "torch.nn.functional.kl_div",
)
"""Calls of losses against a reference (KTO, IPO, a KL penalty), and of much else: a name must say that there is one"""
SWITCHES = ("disable_adapter", "disable_adapters", "set_adapter", "unmerge_adapter")
"""Methods that make one object give the log-probabilities of another model"""
REMEDY = (
    "load the reference a second time, or set reference = copy.deepcopy(policy).eval() before training; with LoRA,"
    " compute its log-probabilities inside `with policy.disable_adapter():`"
)
OPTIMIZER_STATE = re.compile(r"optim|sched|scaler|loader|^opt$", re.I)
"""Names of what loads a state and is no model"""


def _switches_to_other_weights(module: Module) -> bool:
    """Is one object made to give the log-probabilities of another model: without its adapter, or with other weights?"""
    return any(
        _switches_to_other_weights_in_file(part) for part in module.self_and_files_run_together
    )


def _switches_to_other_weights_in_file(module: Module) -> bool:
    """Is one object made to give the log-probabilities of another model in this file: without its
    adapter, or with other weights?
    """
    if any(module.methods(*SWITCHES)):
        return True
    for call in module.methods("load_state_dict"):
        if call.receiver is not None and not OPTIMIZER_STATE.search(ast.unparse(call.receiver)):
            return True
    called = (call.func for call in module.nodes(ast.Call))
    return any(
        "swap" in (func.attr if isinstance(func, ast.Attribute) else func.id)
        for func in called
        if isinstance(func, ast.Attribute | ast.Name)
    )


def _repeats_policy_without_gradient(use: ModelUse, policies: Sequence[ModelUse]) -> bool:
    """Is it a use of the policy, word for word, but without a gradient: what a reference would be asked?"""
    dumped_call = ast.dump(use.call)
    return use.without_gradient and any(ast.dump(policy.call) == dumped_call for policy in policies)


def _preference_losses(module: Module) -> Iterator[Call]:
    """Preference losses that are written by hand."""
    # Without a backward pass the loss is only measured.
    if module.mentions(".backward("):
        yield from module.calls(*LOG_SIGMOIDS, *OTHER_LOSSES)
        yield from module.methods("sigmoid", "logsigmoid")


def _preference_trainings(module: Module) -> Iterator[Call]:
    """Trainers with a preference loss, and losses that are written by hand."""
    yield from _preference_losses(module)
    yield from module.calls(*PREFERENCE_TRAINERS)


class ReferenceIsThePolicy(SourceRule):
    code = "SRC082"
    fault = Fault.REFERENCE_IS_NOT_THE_START
    symptoms = ("dpo-without-effect",)
    severity = "error"
    looks_at = CodePlaces("preference trainings", _preference_trainings)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        in_runs = list(references_that_are_the_policy(module))
        if in_runs:
            yield from self._findings_in_traced_runs(in_runs)
        elif any(_preference_losses(module)) and not _switches_to_other_weights(module):
            yield from self._findings_on_one_object()

    def _findings_in_traced_runs(self, in_runs: Iterable[ReferenceIsPolicy]) -> Iterator[Finding]:
        """Findings on references that the symbolic run shows to be the policy itself."""
        module = self.subject
        for found in in_runs:
            is_trainer = found.reference is found.policy
            cases = [case_of_node(module, found.reference.node)]
            if not is_trainer:
                cases.append(case_of_node(found.policy.home, found.policy.node))
            yield self.finding(
                "the trainer gets the policy as its ref_model: the reference moves with it, and the loss stays at"
                " 0.6931 (newer TRL releases raise an error)"
                if is_trainer
                else _fault_in_words(True),
                "leave ref_model out: the trainer copies the initial policy, or with LoRA switches the adapter off"
                " for the reference"
                if is_trainer
                else REMEDY,
                cases=cases,
            )

    def _findings_on_one_object(self) -> Iterator[Finding]:
        """The finding on a loss whose reference is, by its name or its form, the object that the policy is."""
        module = self.subject
        has_log_sigmoid = any(module.calls(*LOG_SIGMOIDS))
        uses = list(model_uses(module))
        policies = [use for use in uses if not use.of_reference and not use.without_gradient]
        for reference in uses:
            is_repeated = has_log_sigmoid and _repeats_policy_without_gradient(reference, policies)
            if not reference.of_reference and not is_repeated:
                continue
            policy = _policy_of_one_object(module, reference, policies)
            if policy is not None:
                yield self.finding(
                    _fault_in_words(has_log_sigmoid),
                    REMEDY,
                    cases=[case_of_node(module, reference.call), case_of_node(module, policy.call)],
                )
                return


def _fault_in_words(has_log_sigmoid: bool) -> str:
    """What is wrong, with the loss that is seen where the code says how it is computed."""
    seen = "the loss stays at 0.6931" if has_log_sigmoid else "the log-ratio is zero at every step"
    return f"the reference is the same object as the policy: it moves with it, and {seen}"


def _policy_of_one_object(
    module: Module, reference: ModelUse, policies: list[ModelUse]
) -> ModelUse | None:
    """The policy of the same pass whose model is the object that the reference is; None where all are others."""
    for policy in policies:
        # Means of log-probabilities and sums are computed by different calls of one model, and are no pair.
        is_alike = policy.how == reference.how
        if not is_alike or not run_in_same_pass(module, policy.call, reference.call):
            continue
        if are_one_model_object(module, policy.model, reference.model):
            return policy
    return None
