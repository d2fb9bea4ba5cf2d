"""The model that merge_and_unload returns is thrown away.

## What it does
Looks for `model.merge_and_unload()` as a statement, if the wrapper is used again after it; and for a call of a helper
that loads, merges and returns a model, if its result is not used. The merge changes the weights in place, so that a
script is not reported if it then takes only the model below the wrapper (`get_base_model()`, `base_model.model`), or
deletes the wrapper.

## Why it is bad
The method returns the merged model, but the name still refers to the wrapper around it. What is saved or served
afterwards is not what was meant: an adapter's folder, or weight names that no engine knows.

## Example
```python
from peft import AutoPeftModelForCausalLM

model = AutoPeftModelForCausalLM.from_pretrained("adapter")
model.merge_and_unload()
model.save_pretrained("merged")
```

## Use instead
```python
from peft import AutoPeftModelForCausalLM

model = AutoPeftModelForCausalLM.from_pretrained("adapter")
model = model.merge_and_unload()
model.save_pretrained("merged")
```

## Fix safety
Safe: the name then refers to the merged model.

## References
- huggingface/peft#1035, huggingface/peft#868
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.adapted_models_and_loaded_names import MERGES
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.source.make_source_edits import replace_expression
from truetune.source.parsed_source_file import Module


class MergeResultDropped(SourceRule):
    code = "SRC048"
    fault = Fault.MERGE_LOSES_ADAPTER
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = MERGES

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in module.methods("merge_and_unload"):
            if not isinstance(module.scopes.parent[call.node], ast.Expr) or call.receiver is None:
                continue
            if isinstance(call.receiver, ast.Name) and not _is_wrapper_used_after_merge(
                module, call.receiver
            ):
                continue
            name = module.text_of(call.receiver)
            kept = f"{name} = {module.text_of(call.node)}"
            # A call's result has no name that could hold the merged model: nothing is rewritten there.
            simple = isinstance(call.receiver, (ast.Name, ast.Attribute))
            yield self.finding(
                f"the merged model that {name}.merge_and_unload() returns is dropped: {name} is still the"
                " unmerged wrapper",
                f"write {kept}",
                cases=[case_of_node(module, call.node)],
                fix=fix_of_changes(module, replace_expression(module, call.node, kept))
                if simple
                else None,
            )
        for node in module.nodes(ast.Expr):
            merge = _merge_of_own_load_returned(module, node.value)
            if merge is not None:
                yield self.finding(
                    f"the merged model that {module.text_of(node.value)} returns is dropped: the model used"
                    " afterwards is"
                    " not merged",
                    f"keep it: model = {module.text_of(node.value)}",
                    cases=[case_of_node(module, node.value), case_of_node(module, merge)],
                )


def _merge_of_own_load_returned(module: Module, node: ast.expr) -> ast.Call | None:
    """The merge whose result a function of the files returns, of a model that it loads itself; None for other calls.

    The weights of a model that it is given are merged in place.
    """
    function = (
        module.flow.function_that_expression_names(node.func)
        if isinstance(node, ast.Call)
        else None
    )
    if function is None or _saves_model(function):
        return None
    merge = module.flow.producing_call(node)
    if merge is None or merge.method != "merge_and_unload":
        return None
    adapted = module.flow.producing_call(merge.receiver)
    base = adapted.argument(0, "model") if adapted is not None else None
    return None if base is None or _is_parameter_and_no_load(module, base) else merge.node


def _saves_model(function: ast.AST) -> bool:
    """Does a function write a model itself? Then what it returns may be left."""
    attributes = (part.attr for part in ast.walk(function) if isinstance(part, ast.Attribute))
    return any(name.startswith(("save", "push_to_hub")) for name in attributes)


def _is_parameter_and_no_load(module: Module, base: ast.expr) -> bool:
    """Is it a parameter, and no call that loads?"""
    home = module.home(base)
    return isinstance(base, ast.Name) and any(
        one.kind == "parameter" for one in home.scopes.bindings_that_reach(base)
    )


def _is_wrapper_used_after_merge(module: Module, name: ast.Name) -> bool:
    """Is the wrapper itself used again? The base under it is merged in place, and may be what is saved."""
    line = module.place(name)[0]
    return any(
        node.id == name.id
        and module.place(node)[0] > line
        and not isinstance(node.ctx, ast.Del)
        and not _takes_model_below_wrapper(module, node)
        and not _is_another_object_of_that_name(module, name, node)
        for node in module.nodes(ast.Name)
    )


def _takes_model_below_wrapper(module: Module, wrapper: ast.Name) -> bool:
    """Is it `wrapper.get_base_model` or `wrapper.base_model.model`, which is the merged model?"""
    outer = module.scopes.parent.get(wrapper)
    if not isinstance(outer, ast.Attribute):
        return False
    if outer.attr == "get_base_model":
        return True
    inner = module.scopes.parent.get(outer)
    return outer.attr == "base_model" and isinstance(inner, ast.Attribute) and inner.attr == "model"


def _is_another_object_of_that_name(module: Module, wrapper: ast.Name, later: ast.Name) -> bool:
    """Was the name bound again before it is read, so that it no longer is the wrapper?"""
    if isinstance(later.ctx, ast.Store):
        return True
    merged = list(module.scopes.bindings_that_reach(wrapper))
    read = list(module.scopes.bindings_that_reach(later))
    return bool(merged and read) and not any(one is other for one in merged for other in read)
