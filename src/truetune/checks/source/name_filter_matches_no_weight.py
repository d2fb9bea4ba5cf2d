"""A filter on names of weights, which is to freeze or unfreeze some, matches none.

## What it does
Looks at `name.startswith("...")` of names that come from `named_parameters()` of a model. It fires where no name of
such a model can begin like that: those of a causal language model of transformers begin with the name of its body
(`model.layers.0`, `transformer.h.0`), never with `layers.`, `h.` or `layer.`; those of a model with an adapter begin
with `base_model.`, and of one in DistributedDataParallel with `module.`.

## Why it is bad
The test is false for every weight. What it was to unfreeze stays frozen, so that the loss hardly moves, and what it was
to freeze is trained.

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
Pythia): print the names first.

## References
- `base_model_prefix` of transformers.PreTrainedModel; torch.nn.Module.named_parameters
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

CAUSAL_MODELS = (
    "transformers.AutoModelForCausalLM.from_pretrained",
    "transformers.*ForCausalLM.from_pretrained",
)
ADAPTED = ("peft.get_peft_model", "peft.PeftModel*.from_pretrained", "peft.AutoPeftModel*")
SAME_MODEL = frozenset(("to", "cuda", "cpu", "float", "half", "bfloat16", "train", "eval"))
"""Methods of a model that give it back"""
MAX_CHAIN = 8
WRAPPED = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.DataParallel")
PARTS_OF_BODIES = re.compile(
    r"(?:layers|layer|h|blocks|block|embed_tokens|wte|wpe|norm|final_layernorm|ln_f|self_attn|mlp|attention)(?:\.|$)"
)
"""Parts of a model that stand within its body, so that no name of a causal language model begins with them"""


class _Filter(NamedTuple):
    """A test of how a weight's name begins."""

    call: Call
    prefixes: tuple[str, ...]
    model: ast.expr
    """Whose `named_parameters()` the names are"""


def _filters(module: Module) -> Iterator[_Filter]:
    """Tests of how names of weights begin."""
    for call in module.methods("startswith"):
        prefixes = _prefixes(module, call.args[0]) if len(call.args) == 1 else ()
        model = _model_of_name(module, call.receiver) if call.receiver is not None else None
        if prefixes and model is not None:
            yield _Filter(call, prefixes, model)


class NameFilterMatchesNoWeight(SourceRule):
    code = "SRC285"
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("tests of how names of weights begin", _filters)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for one in _filters(module):
            why = _why_none_begins(module, one)
            if why is not None and not _has_alternative(module, one):
                named = " or ".join(map(repr, one.prefixes))
                yield self.finding(
                    f"no weight of this model has a name that begins with {named}: {why[0]}. The test is false for"
                    " each, so that what it chooses stays as it was (frozen, or trained)",
                    f"write {why[1]}, or test `in name`; then count the weights that are chosen, and stop at 0",
                    cases=[case_at(module, one.call.node), case_at(module, one.model)],
                )


def _prefixes(module: Module, node: ast.expr) -> tuple[str, ...]:
    """What a name may begin with, as far as it is written; empty where one is not known."""
    if isinstance(node, (ast.Tuple, ast.List)):
        parts = [_prefixes(module, part) for part in node.elts]
        return tuple(text for part in parts for text in part) if all(parts) else ()
    if isinstance(node, ast.JoinedStr) and node.values:
        first = node.values[0]
        text = first.value if isinstance(first, ast.Constant) else None
        return (text,) if isinstance(text, str) and text else ()
    origins = module.flow.origins(node)
    if isinstance(node, ast.Name) and len(origins) == 1:
        made = origins[0].node
        if isinstance(made, (ast.Tuple, ast.List)):
            return _prefixes(module, made)
    plain = module.flow.value(node)
    return (plain,) if isinstance(plain, str) and plain else ()


def _model_of_name(module: Module, name: ast.expr) -> ast.expr | None:
    """The model, where a name is the first of each pair of its `named_parameters()`."""
    if not isinstance(name, ast.Name):
        return None
    for parent in module.parents(name):
        loops = parent.generators if hasattr(parent, "generators") else (parent,)
        for loop in loops:
            if not isinstance(loop, (ast.For, ast.comprehension)) or not _binds(loop.target, name):
                continue
            named = loop.iter
            # A cast of the pairs leaves their names: list(...), sorted(...).
            while isinstance(named, ast.Call) and named.args and isinstance(named.func, ast.Name):
                named = named.args[0]
            if not isinstance(named, ast.Call) or not isinstance(named.func, ast.Attribute):
                return None
            is_whole = named.func.attr == "named_parameters" and not named.args
            return named.func.value if is_whole else None
    return None


def _binds(target: ast.expr, name: ast.Name) -> bool:
    """Is a name the first of the pair that a loop binds?"""
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
    return isinstance(first, ast.Name) and first.id == name.id


def _why_none_begins(module: Module, one: _Filter) -> tuple[str, str] | None:
    """Why no name begins so, and what to write; None where one may."""
    makers = [_maker(module, origin.node) for origin in module.flow.origins(one.model)]
    calls = [maker for maker in makers if maker is not None]
    if not calls or len(calls) != len(makers):
        return None
    for patterns, first in ((ADAPTED, "base_model."), (WRAPPED, "module.")):
        if all(call.named(*patterns) for call in calls):
            may_fit = any(_overlap(prefix, first) for prefix in one.prefixes)
            return None if may_fit else (f"they begin with {first}", repr(first + "..."))
    if not all(call.named(*CAUSAL_MODELS) for call in calls):
        return None
    if not all(PARTS_OF_BODIES.match(prefix) for prefix in one.prefixes):
        return None
    return (
        "they begin with the name of its body, as in model.layers.0 or transformer.h.0",
        repr(f"model.{one.prefixes[0]}"),
    )


def _has_alternative(module: Module, one: _Filter) -> bool:
    """Is it one of several tests, `a or b`, of which another may match how a name begins?"""
    for parent in module.parents(one.call.node):
        if isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.Or):
            return any(
                other.call.node in set(ast.walk(parent)) and not _why_none_begins(module, other)
                for other in _filters(module)
                if other.call.node is not one.call.node
            )
    return False


def _maker(module: Module, node: ast.AST) -> Call | None:
    """The call that made a model, behind methods that give the same model again (`.cuda()`)."""
    for _ in range(MAX_CHAIN):
        call = module.flow.call(node) if isinstance(node, ast.Call) else None
        if call is None or call.method not in SAME_MODEL or call.receiver is None:
            return call
        below = module.flow.origins(call.receiver)
        if len(below) != 1:
            return None
        node = below[0].node
    return None


def _overlap(prefix: str, first: str) -> bool:
    """May a name that begins with `first` begin with the prefix?"""
    return prefix.startswith(first) or first.startswith(prefix)
