"""A filter on weight names, meant to freeze or unfreeze some weights, matches none.

## What it does
Inspects `name.startswith("...")` for names that come from `named_parameters()` of a model. It fires if no name of such
a model can start like that. Names of a causal language model of transformers start with its body (`model.layers.0`,
`transformer.h.0`), never with `layers.`, `h.` or `layer.`. Those of a model with an adapter start with `base_model.`,
and those in DistributedDataParallel with `module.`. It also fires on `name in [...]` with a list of parts of names,
since `in` compares whole names there.

## Why it is bad
The condition is false for every weight. Weights that it should unfreeze stay frozen, so the loss hardly moves; weights
that it should freeze are trained.

## Example
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("some/model")
for name, weight in model.named_parameters():
    weight.requires_grad = name.startswith("layers.31.")
```

## Use instead
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("some/model")
for name, weight in model.named_parameters():
    weight.requires_grad = name.startswith("model.layers.31.")
```

## Fix safety
The prefix depends on the family (`model.` for Llama, Qwen, Mistral and Gemma, `transformer.` for GPT-2, `gpt_neox.` for
Pythia): print the names first. After the fix other weights are trained, so the run must be repeated.

## References
- `base_model_prefix` of transformers.PreTrainedModel; torch.nn.Module.named_parameters
- namisan/mt-dnn#37 (a whole name in a list of parts)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.infer_object_types import MEMBERS_GIVING_THE_OBJECT
from truetune.source.parsed_source_file import Module

CAUSAL_MODELS = (
    "transformers.AutoModelForCausalLM.from_pretrained",
    "transformers.*ForCausalLM.from_pretrained",
)
ADAPTED = ("peft.get_peft_model", "peft.PeftModel*.from_pretrained", "peft.AutoPeftModel*")
MAX_CHAIN = 8
"""Methods that are followed from a model to its load. Chosen, not measured: `.to(d).half().eval()` are three"""
WRAPPED = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.DataParallel")
PARTS_OF_BODIES = re.compile(
    r"(?:layers|layer|h|blocks|block|embed_tokens|wte|wpe|norm|final_layernorm|ln_f|self_attn|mlp|attention)(?:\.|$)"
)
"""Parts of a model that stand within its body, so that no name of a causal language model begins with them"""


MIN_DOTS = 2
"""Dots in the name of any weight of a model of transformers, but of a few that are a parameter themselves"""


class _PrefixTest(NamedTuple):
    """A test of how a weight's name begins."""

    call: Call
    prefixes: tuple[str, ...]
    model: ast.expr
    """Whose `named_parameters()` the names are"""


def _prefix_tests(module: Module) -> Iterator[_PrefixTest]:
    """Tests of how names of weights begin."""
    for call in module.methods("startswith"):
        prefixes = _possible_prefixes(module, call.args[0]) if len(call.args) == 1 else ()
        model = _model_of_weight_name(module, call.receiver) if call.receiver is not None else None
        if prefixes and model is not None:
            yield _PrefixTest(call, prefixes, model)


class _WholeNameTest(NamedTuple):
    """A test of whether a weight's whole name is one of a list."""

    test: ast.Compare
    names: tuple[str, ...]
    model: ast.expr


def _whole_name_tests(module: Module) -> Iterator[_WholeNameTest]:
    """Tests of whether the whole name of a weight is in a list of names."""
    for test in module.nodes(ast.Compare):
        is_membership = len(test.ops) == 1 and isinstance(test.ops[0], ast.In | ast.NotIn)
        listed = module.flow.value(test.comparators[0]) if is_membership else None
        model = _model_of_weight_name(module, test.left) if is_membership else None
        if model is None or not isinstance(listed, list | tuple | set | frozenset) or not listed:
            continue
        if all(isinstance(one, str) for one in listed):
            yield _WholeNameTest(test, tuple(listed), model)


def _is_part_of_weight_names(name: str) -> bool:
    """Is it only a part of what a loaded model calls a weight (`model.norm.weight`), as `bias` or `norm.weight`?"""
    return name.count(".") < MIN_DOTS


def _weight_name_tests(module: Module) -> Iterator[object]:
    """Tests of names of weights."""
    yield from _prefix_tests(module)
    yield from _whole_name_tests(module)


class NameFilterMatchesNoWeight(SourceRule):
    code = "SRC285"
    fault = Fault.NO_WEIGHT_TRAINED
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("tests of names of weights", _weight_name_tests)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for one in _prefix_tests(module):
            why = _reason_no_weight_begins_and_remedy(module, one)
            if why is not None and not _is_one_of_several_tests(module, one):
                named = " or ".join(map(repr, one.prefixes))
                yield self.finding(
                    f"no weight of this model has a name that starts with {named}: {why[0]}. The condition is false"
                    " for every weight, so none is frozen or unfrozen by it",
                    f"write {why[1]}, or test `in name`; then count the matching weights, and raise an error at 0",
                    cases=[case_of_node(module, one.call.node), case_of_node(module, one.model)],
                )
        whole = [
            one
            for one in _whole_name_tests(module)
            if "model" in module.flow.types(one.model)
            and all(map(_is_part_of_weight_names, one.names))
        ]
        if whole:
            named = ", ".join(map(repr, whole[0].names))
            yield self.finding(
                f"`in` compares a weight's whole name with a list of parts of names ({named}): no weight has such a"
                " name, so none matches",
                "write any(part in name for part in names); then count the matching weights, and raise an error at 0",
                cases=[case_of_node(module, one.test) for one in whole],
            )


def _possible_prefixes(module: Module, node: ast.expr) -> tuple[str, ...]:
    """The texts that a test compares the beginning of a name with, as far as they are written;
    empty where one is not known.
    """
    if isinstance(node, ast.Name):
        origins = module.flow.origins(node)
        if len(origins) == 1 and isinstance(origins[0].node, (ast.Tuple, ast.List)):
            node = origins[0].node
    if isinstance(node, (ast.Tuple, ast.List)):
        parts = [_possible_prefixes(module, part) for part in node.elts]
        return tuple(text for part in parts for text in part) if all(parts) else ()
    text = _constant_start(node) if isinstance(node, ast.JoinedStr) else module.flow.value(node)
    return (text,) if isinstance(text, str) and text else ()


def _constant_start(text: ast.JoinedStr) -> object:
    """The text that an f-string begins with, whatever its values are; None where it begins with a
    value.
    """
    first = text.values[0] if text.values else None
    return first.value if isinstance(first, ast.Constant) else None


def _model_of_weight_name(module: Module, name: ast.expr) -> ast.expr | None:
    """The model, where a name is the first of each pair of its `named_parameters()`."""
    pairs = _iterable_that_binds(module, name) if isinstance(name, ast.Name) else None
    # A cast of the pairs leaves their names: list(...), sorted(...).
    while isinstance(pairs, ast.Call) and pairs.args and isinstance(pairs.func, ast.Name):
        pairs = pairs.args[0]
    if not isinstance(pairs, ast.Call) or not isinstance(pairs.func, ast.Attribute):
        return None
    is_whole = pairs.func.attr == "named_parameters" and not pairs.args
    return pairs.func.value if is_whole else None


def _iterable_that_binds(module: Module, name: ast.Name) -> ast.expr | None:
    """The iterable of the nearest loop that binds a name; None without one."""
    for parent in module.parents(name):
        loops = parent.generators if hasattr(parent, "generators") else (parent,)
        for loop in loops:
            if isinstance(loop, (ast.For, ast.comprehension)) and _is_first_of_bound_pair(
                loop.target, name
            ):
                return loop.iter
    return None


def _is_first_of_bound_pair(target: ast.expr, name: ast.Name) -> bool:
    """Is a name the first of the pair that a loop binds?"""
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
    return isinstance(first, ast.Name) and first.id == name.id


def _reason_no_weight_begins_and_remedy(module: Module, one: _PrefixTest) -> tuple[str, str] | None:
    """The reason why no name of a weight begins so, and what to write; None where one may."""
    makers = [
        _call_that_made_model(module, origin.node) for origin in module.flow.origins(one.model)
    ]
    calls = [maker for maker in makers if maker is not None]
    if not calls or len(calls) != len(makers):
        return None
    if _are_calls_of(calls, *ADAPTED):
        return _reason_and_remedy_by_common_first_name(one, "base_model.")
    if _are_calls_of(calls, *WRAPPED):
        return _reason_and_remedy_by_common_first_name(one, "module.")
    is_causal = _are_calls_of(calls, *CAUSAL_MODELS)
    if not is_causal or not all(PARTS_OF_BODIES.match(prefix) for prefix in one.prefixes):
        return None
    return (
        "they start with the name of the model's body, as in model.layers.0 or transformer.h.0",
        repr(f"model.{one.prefixes[0]}"),
    )


def _are_calls_of(calls: list[Call], *patterns: str) -> bool:
    """Are all calls of functions with these names?"""
    return all(call.named(*patterns) for call in calls)


def _reason_and_remedy_by_common_first_name(one: _PrefixTest, first: str) -> tuple[str, str] | None:
    """The reason why no name of a weight begins so, of a model whose names all begin with `first`,
    and what to write; None where one may.
    """
    if any(_may_begin_alike(prefix, first) for prefix in one.prefixes):
        return None
    return f"they start with {first}", repr(first + "...")


def _is_one_of_several_tests(module: Module, one: _PrefixTest) -> bool:
    """Is it one of several tests, `a or b`, of which another may match how a name begins?"""
    for parent in module.parents(one.call.node):
        if isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.Or):
            return any(
                other.call.node in set(ast.walk(parent))
                and not _reason_no_weight_begins_and_remedy(module, other)
                for other in _prefix_tests(module)
                if other.call.node is not one.call.node
            )
    return False


def _call_that_made_model(module: Module, node: ast.AST) -> Call | None:
    """The call that made a model, below methods that give the same model again (`.cuda()`)."""
    for _ in range(MAX_CHAIN):
        call = module.flow.call(node) if isinstance(node, ast.Call) else None
        if call is None or call.method not in MEMBERS_GIVING_THE_OBJECT or call.receiver is None:
            return call
        below = module.flow.origins(call.receiver)
        if len(below) != 1:
            return None
        node = below[0].node
    return None


def _may_begin_alike(prefix: str, first: str) -> bool:
    """May a name that begins with `first` begin with the prefix?"""
    return prefix.startswith(first) or first.startswith(prefix)
