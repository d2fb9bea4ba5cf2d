"""Layers are chosen by numbers that the model does not have.

## What it does
Compares the layer numbers in a script with the number of layers of the model, by its config.json or, for a published
model, by its name. It reads tests of weight names (`startswith`, `in`, `re.search`), also of lists and of
`f"layers.{i}." for i in range(28, 32)`; slices (`model.model.layers[28:]`); a number taken from a name
(`int(name.split(".")[2]) >= 28`); and `layers_to_transform` and `target_modules` of PEFT. It is an error if none of the
layers exists, and a warning if some of a range do not.

## Why it is bad
Nothing stops: a test of names is false, and a slice is empty. The selected layers stay frozen, at most a norm or the
head learns, and the loss is flat at any learning rate.

## Example
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
LAST = ("model.layers.30.", "model.layers.31.", "model.norm.")
for name, weight in model.named_parameters():
    weight.requires_grad = name.startswith(LAST)
```

## Use instead
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
LAST = ("model.layers.26.", "model.layers.27.", "model.norm.")
for name, weight in model.named_parameters():
    weight.requires_grad = name.startswith(LAST)
```

## Fix safety
More weights are trained now: gradients and the optimizer need memory for them. Count the trained weights before the
run.

## References
- `num_hidden_layers` in config.json; torch.nn.Module.named_parameters; peft documentation, `layers_to_transform`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.adapted_models_and_loaded_names import (
    literal_or_default_text_of_expression,
    written_name_of_loaded_model,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.layer_numbers_named_and_model_depth import (
    COUNT_KEYS,
    LAYER_IN_NAME,
    OTHER_STACK,
    describe_numbers,
    jobs_name_model_of_another_depth,
    layer_count_of_model,
    layer_numbers_in_texts,
    possible_texts_of_expression,
    whole_numbers_of_list,
)
from truetune.source.parsed_source_file import Module

CAUSAL_LOADS = (
    "transformers.AutoModelForCausalLM.from_pretrained",
    "transformers.*ForCausalLM.from_pretrained",
    "unsloth.FastLanguageModel.from_pretrained",
    "unsloth.FastModel.from_pretrained",
)
ADAPTER_SETTINGS = ("peft.*Config", "unsloth.*.get_peft_model")
SEARCHES = ("re.search", "re.match", "re.fullmatch")
LAYER_LISTS = ("layers", "h", "blocks")
SETS_DEPTH = frozenset((*LAYER_LISTS, *COUNT_KEYS))
WHOLE_MODELS = frozenset(("model", "module", "base_model", "llm", "language_model", "policy"))
"""Attributes that hold a whole model: of a trainer, of DDP, of PEFT, of a class of the script"""
NAMING_METHODS = ("named_parameters", "named_modules")
AT_LEAST = (ast.GtE, ast.Gt, ast.Eq, ast.In)
"""Comparisons of a layer's number that are false for all layers, where the other side is beyond them"""


class _LayerChoice(NamedTuple):
    """A place that chooses layers by number."""

    node: ast.AST
    texts: tuple[str, ...]
    """Names or patterns"""
    numbers: tuple[int, ...]
    """Numbers that stand alone"""
    model: ast.expr | None
    """The model whose layers they are; None where it is the one of the file"""
    how: str


class _ChosenLayers(NamedTuple):
    """The numbers of a choice of layers, some of which the model does not have."""

    model: str
    layer_count: int
    inside: list[int]
    """The numbers of layers that exist, in order"""
    beyond: list[int]
    """The numbers behind the last layer, in order"""

    @property
    def is_consecutive(self) -> bool:
        """Does each number follow the one before, so that a range of layers is meant?"""
        numbers = [*self.inside, *self.beyond]
        return numbers == list(range(numbers[0], numbers[-1] + 1))


class _NameTest(NamedTuple):
    """A test of a text that may be the name of a weight."""

    node: ast.AST
    text: ast.expr
    name: ast.expr


def _layer_choices(module: Module) -> Iterator[_LayerChoice]:
    """The places of a file that choose layers by number, of a model that has as many as it was published with."""
    if _changes_number_of_layers(module):
        return
    yield from _tests_of_weight_names(module)
    yield from _comparisons_of_layer_number(module)
    yield from _layer_slices(module)
    yield from _adapter_layer_settings(module)


class LayerNumbersBeyondTheModel(SourceRule):
    code = "SRC306"
    fault = Fault.LORA_TARGETS_DO_NOT_EXIST
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("places that choose layers of a model by number", _layer_choices)

    def findings(self) -> Iterator[Finding]:
        module, reported = self.subject, set()
        for choice in _layer_choices(module):
            if choice.node in reported:
                continue
            chosen = _find_layers_beyond_model(module, choice)
            if chosen is None:
                continue
            reported.add(choice.node)
            if not chosen.inside:
                yield self._finding_on_no_layer(choice, chosen)
            elif chosen.is_consecutive:
                yield self._finding_on_missing_layers(choice, chosen)

    def _finding_on_no_layer(self, choice: _LayerChoice, chosen: _ChosenLayers) -> Finding:
        """The finding that no layer of the model is chosen: all numbers are beyond it."""
        others = [
            text
            for text in choice.texts
            if not LAYER_IN_NAME.search(text.replace("\\.", ".")) and not OTHER_STACK.search(text)
        ]
        rest = f"; of the other names, only {', '.join(others[:4])} can match" if others else ""
        return self.finding(
            f"{chosen.model} has layers 0 to {chosen.layer_count - 1}, but {choice.how}"
            f" {describe_numbers(chosen.beyond)}: no layer of the model is selected{rest}",
            _remedy(chosen.layer_count, len(chosen.beyond)),
            cases=_cases_of_choice(self.subject, choice),
        )

    def _finding_on_missing_layers(self, choice: _LayerChoice, chosen: _ChosenLayers) -> Finding:
        """The finding that some of the numbers are beyond the model."""
        return self.finding(
            f"{chosen.model} has layers 0 to {chosen.layer_count - 1}, but {choice.how}"
            f" {describe_numbers([*chosen.inside, *chosen.beyond])}: only {describe_numbers(chosen.inside)} exist",
            _remedy(chosen.layer_count, len(chosen.beyond) + len(chosen.inside)),
            severity="warning",
            cases=_cases_of_choice(self.subject, choice),
        )


def _find_layers_beyond_model(module: Module, choice: _LayerChoice) -> _ChosenLayers | None:
    """The layers of a choice, where its model lacks some; None where it has all of them, or another
    depth may be meant.
    """
    name = _name_of_chosen_or_loaded_model(module, choice.model)
    layers = layer_count_of_model(name)
    if name is None or layers is None:
        return None
    numbers = sorted({*choice.numbers, *layer_numbers_in_texts(choice.texts, layers)})
    beyond = [number for number in numbers if number >= layers]
    if not beyond or jobs_name_model_of_another_depth(Path(module.path), layers):
        return None
    inside = [number for number in numbers if number < layers]
    return _ChosenLayers(name, layers, inside, beyond)


def _remedy(layers: int, count: int) -> str:
    """The remedy: name layers that exist, and stop where none is among them."""
    last = list(range(max(0, layers - count), layers))
    named = (
        f"the last is {last[0]}"
        if len(last) == 1
        else f"the last {len(last)} are {describe_numbers(last)}"
    )
    return (
        f"use layers that exist ({named}), or compute them from model.config.num_hidden_layers; then check before the"
        " run: sum(p.numel() for p in model.parameters() if p.requires_grad)"
    )


def _cases_of_choice(module: Module, choice: _LayerChoice) -> list[Case]:
    """The case of the place that chooses the layers."""
    return [case_of_node(module, choice.node)]


def _name_of_chosen_or_loaded_model(module: Module, model: ast.expr | None) -> str | None:
    """The name of the model whose layers are chosen: what the place says, else the one that the file loads."""
    name = written_name_of_loaded_model(module, model) if model is not None else None
    if name is not None or (model is not None and _may_be_submodel_or_other_model(module, model)):
        return name
    loads = list(module.calls(*CAUSAL_LOADS))
    given = [load.argument(0, "pretrained_model_name_or_path") for load in loads]
    named = [
        load.keywords.get("model_name") if one is None else one
        for load, one in zip(loads, given, strict=True)
    ]
    names = {literal_or_default_text_of_expression(module, one) for one in named}
    return names.pop() if len(names) == 1 else None


def _may_be_submodel_or_other_model(module: Module, model: ast.expr) -> bool:
    """Is the expression a part of a model, or made by code that may return any model?"""
    if isinstance(model, ast.Attribute) and model.attr not in WHOLE_MODELS:
        return True
    made = [origin.node for origin in module.flow.origins(model)]
    return any(isinstance(one, ast.Call) and not module.flow.call(one).names for one in made)


def _changes_number_of_layers(module: Module) -> bool:
    """Does a script give its model other layers than the published one has?"""
    if _appends_to_layers(module) or _sets_layers_or_count(module):
        return True
    return any(key in call.keywords for call in module.all_calls for key in COUNT_KEYS)


def _appends_to_layers(module: Module) -> bool:
    """Does a script add to a list of layers: `model.layers.append(block)`?"""
    lists = (
        call.receiver for call in module.methods("append", "extend", "insert") if call.receiver
    )
    return any(isinstance(one, ast.Attribute) and one.attr in LAYER_LISTS for one in lists)


def _sets_layers_or_count(module: Module) -> bool:
    """Does a script set a model's layers or their count: `config.num_hidden_layers = 8`?"""
    targets = (target for node in module.nodes(ast.Assign) for target in node.targets)
    return any(isinstance(one, ast.Attribute) and one.attr in SETS_DEPTH for one in targets)


def _named_parameters_call_iterated(module: Module, node: ast.expr | None) -> ast.Call | None:
    """The `named_parameters()` whose names an expression goes through; None for any other text."""
    if not isinstance(node, ast.Name):
        return None
    for origin in module.flow.origins(node):
        inner: ast.AST = origin.node
        # A cast of the pairs leaves their names: list(...), sorted(...), enumerate(...).
        while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.args:
            inner = inner.args[0]
        is_naming = (
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Attribute)
            and inner.func.attr in NAMING_METHODS
        )
        if (
            origin.element
            and origin.path[-1:] == (0,)
            and is_naming
            and isinstance(inner, ast.Call)
        ):
            return inner
    return None


def _model_of_named_parameters_call(naming: ast.Call) -> ast.expr | None:
    """The model whose `named_parameters()` are called; None for a plain function."""
    return naming.func.value if isinstance(naming.func, ast.Attribute) else None


def _tests_of_weight_names(module: Module) -> Iterator[_LayerChoice]:
    """Tests whether the name of a weight begins with, holds or matches a text."""
    for test in (
        *_tests_by_prefix_or_suffix(module),
        *_tests_by_pattern(module),
        *_tests_by_in_operator(module),
    ):
        naming = _named_parameters_call_iterated(module, test.name)
        texts = possible_texts_of_expression(module, test.text) if naming is not None else []
        if naming is not None and texts:
            model = _model_of_named_parameters_call(naming)
            yield _LayerChoice(test.node, tuple(texts), (), model, "the names ask for layers")


def _tests_by_prefix_or_suffix(module: Module) -> Iterator[_NameTest]:
    """Tests of how a name begins or ends: `name.startswith("model.layers.31.")`."""
    for call in module.methods("startswith", "endswith"):
        if call.receiver is not None and call.args:
            yield _NameTest(call.node, call.args[0], call.receiver)


def _tests_by_pattern(module: Module) -> Iterator[_NameTest]:
    """Tests of a name by a pattern: `re.search(r"layers\\.31", name)`, and the same of a compiled
    pattern.
    """
    for call in module.calls(*SEARCHES):
        if len(call.args) >= 2:
            yield _NameTest(call.node, call.args[0], call.args[1])
    for call in module.methods("search", "match", "fullmatch"):
        compiled = module.flow.producing_call(call.receiver)
        if compiled is not None and compiled.named("re.compile") and compiled.args and call.args:
            yield _NameTest(call.node, compiled.args[0], call.args[0])


def _tests_by_in_operator(module: Module) -> Iterator[_NameTest]:
    """Tests whether a name holds a text: `"layers.31." in name`."""
    for compare in module.nodes(ast.Compare):
        if len(compare.ops) == 1 and isinstance(compare.ops[0], (ast.In, ast.NotIn)):
            yield _NameTest(compare, compare.left, compare.comparators[0])


def _comparisons_of_layer_number(module: Module) -> Iterator[_LayerChoice]:
    """Comparisons of a layer's number with a constant: `int(name.split(".")[2]) >= 28`, and the
    same of the number that enumerate gives a layer.
    """
    for compare in module.nodes(ast.Compare):
        if len(compare.ops) != 1 or not isinstance(compare.ops[0], AT_LEAST):
            continue
        if _is_condition_of_raise(module, compare):
            continue
        expression = _model_of_layer_number(module, compare.left)
        if expression is None:
            continue
        numbers = whole_numbers_of_list(module, compare.comparators[0])
        if isinstance(compare.ops[0], ast.Gt):
            numbers = [number + 1 for number in numbers]
        if numbers:
            model = expression if isinstance(expression, ast.expr) else None
            yield _LayerChoice(
                compare, (), tuple(numbers), model, "the comparison takes layers from number"
            )


def _is_condition_of_raise(module: Module, compare: ast.Compare) -> bool:
    """Is the comparison the condition of a `raise`? Then no layer is to have such a number."""
    around = next((one for one in module.parents(compare) if isinstance(one, ast.stmt)), None)
    return isinstance(around, ast.If) and any(isinstance(one, ast.Raise) for one in around.body)


def _model_of_layer_number(module: Module, node: ast.expr) -> ast.expr | None:
    """The model, where an expression is the number of one of its layers."""
    for origin in module.flow.origins(node):
        if origin.element and origin.path == (0,):
            listed = _model_of_enumerated_layers(origin.node)
            if listed is not None:
                return listed
        if isinstance(origin.node, ast.Call) and not origin.element:
            naming = _named_parameters_call_of_layer_number(module, origin.node)
            if naming is not None:
                return _model_of_named_parameters_call(naming)
    return None


def _model_of_enumerated_layers(node: ast.AST) -> ast.expr | None:
    """The model of `enumerate(model.model.layers)`."""
    is_enumerate = (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "enumerate"
    )
    if not is_enumerate or not isinstance(node, ast.Call) or len(node.args) != 1:
        return None
    listed = node.args[0]
    is_layers = isinstance(listed, ast.Attribute) and listed.attr in LAYER_LISTS
    if OTHER_STACK.search(ast.unparse(listed)):
        return None
    return _root_of_attribute(listed) if is_layers else None


def _named_parameters_call_of_layer_number(module: Module, node: ast.Call) -> ast.Call | None:
    """The `named_parameters()` of `int(name.split(".")[2])`, whose names hold the number."""
    if not isinstance(node.func, ast.Name) or node.func.id != "int" or len(node.args) != 1:
        return None
    part = node.args[0]
    if not isinstance(part, ast.Subscript) or type(module.flow.value(part.slice)) is not int:
        return None
    split = module.flow.producing_call(part.value)
    if split is None or split.method != "split" or split.receiver is None:
        return None
    return _named_parameters_call_iterated(module, split.receiver)


def _layer_slices(module: Module) -> Iterator[_LayerChoice]:
    """Slices of a model's layers from a number on: `model.model.layers[28:]`, which is empty where
    there are no more than 28.
    """
    for part in module.nodes(ast.Subscript):
        listed = part.value
        if not isinstance(part.slice, ast.Slice) or not isinstance(listed, ast.Attribute):
            continue
        lower = module.flow.value(part.slice.lower)
        is_of_model = _is_model_or_named_so(
            module, _root_of_attribute(listed)
        ) and not OTHER_STACK.search(ast.unparse(listed))
        if listed.attr in LAYER_LISTS and type(lower) is int and lower > 0 and is_of_model:
            yield _LayerChoice(
                part, (), (lower,), _root_of_attribute(listed), "the slice begins at layer"
            )


def _is_model_or_named_so(module: Module, node: ast.expr) -> bool:
    """Is it a model that the file loads, or a name for one?"""
    is_named = isinstance(node, ast.Name) and "model" in node.id.lower()
    return is_named or written_name_of_loaded_model(module, node) is not None


def _root_of_attribute(node: ast.expr) -> ast.expr:
    """The object that a chain of attributes begins with: `model` of `model.model.layers`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def _adapter_layer_settings(module: Module) -> Iterator[_LayerChoice]:
    """The layers that an adapter is put on, by number or by name."""
    for call in module.calls(*ADAPTER_SETTINGS):
        listed = call.keywords.get("layers_to_transform")
        numbers = tuple(whole_numbers_of_list(module, listed))
        if listed is not None and numbers:
            yield _LayerChoice(listed, (), numbers, None, "layers_to_transform asks for layers")
        for key in ("target_modules", "modules_to_save"):
            texts = tuple(possible_texts_of_expression(module, call.keywords.get(key)))
            if any(LAYER_IN_NAME.search(text.replace("\\.", ".")) for text in texts):
                yield _LayerChoice(call.keywords[key], texts, (), None, f"{key} asks for layers")
