"""Finds the places in source that set the pad token or its id, and makes the changes that set
another one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    eos_of_model,
    likely_model_names,
)
from truetune.source.make_source_edits import Changes, insert_statements_after, replace_expression
from truetune.source.name_bindings_in_scopes import Scope
from truetune.source.parsed_source_file import Module

EOS_TEXTS = ("</s>", "<eos>")
"""The EOS of every model that has such a token"""


@dataclass(frozen=True, slots=True)
class PadSetting:
    """One place that sets the pad token."""

    node: ast.AST
    value: ast.expr
    tokenizer: ast.expr | None
    scope: Scope
    conditional: bool
    eos: bool
    """It is the EOS token"""
    if_missing: bool
    """Only where the tokenizer has no pad token (`if tokenizer.pad_token is None`)"""

    def replaces_earlier(self, earlier: PadSetting) -> bool:
        """Does this one, later in the text, undo that one in any case?"""
        return self.scope is earlier.scope and not self.conditional


def pad_settings(module: Module) -> Iterator[PadSetting]:
    """Every place that sets a tokenizer's pad token or its id, in the order of the text."""
    for node in module.nodes(ast.Assign, ast.Call):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr in (
                    "pad_token",
                    "pad_token_id",
                ):
                    if _is_tokenizer(module, target.value):
                        yield _make_pad_setting(module, node, node.value, target.value)
        elif isinstance(node, ast.Call):
            yield from _pad_setting_of_call(module, node)


def padding_sides_set(module: Module) -> Iterator[ast.expr]:
    """What the padding sides of tokenizers are set to in one file."""
    yield from (
        call.keywords["padding_side"]
        for call in module.all_calls
        if "padding_side" in call.keywords
    )
    for node in module.nodes(ast.Assign):
        if any(
            isinstance(target, ast.Attribute) and target.attr == "padding_side"
            for target in node.targets
        ):
            yield node.value


def _pad_setting_of_call(module: Module, node: ast.Call) -> Iterator[PadSetting]:
    """The pad that a call sets: `setattr`, `add_special_tokens`, or a load with `pad_token=`."""
    call = module.flow.call(node)
    if call.named("setattr") and len(call.args) == 3 and _is_tokenizer(module, call.args[0]):
        if module.flow.value(call.args[1]) in ("pad_token", "pad_token_id"):
            yield _make_pad_setting(module, node, call.args[2], call.args[0])
    elif (
        call.method == "add_special_tokens"
        and call.receiver is not None
        and _is_tokenizer(module, call.receiver)
    ):
        tokens = call.argument(0, "special_tokens_dict")
        entries = module.flow.dict_entries_and_if_complete(tokens)[0] if tokens is not None else {}
        if "pad_token" in entries:
            yield _make_pad_setting(
                module, node, entries["pad_token"], call.receiver, entries.get("eos_token")
            )
    elif call.named("transformers.*Tokenizer*.from_pretrained") and "pad_token" in call.keywords:
        yield _make_pad_setting(
            module, node, call.keywords["pad_token"], None, call.keywords.get("eos_token")
        )


def _make_pad_setting(
    module: Module,
    node: ast.AST,
    value: ast.expr,
    tokenizer: ast.expr | None,
    eos: ast.expr | None = None,
) -> PadSetting:
    """The record of a place that sets the pad token.

    `eos`: what EOS is set to in the same statement.
    """
    scopes = module.scopes
    tests = [parent.test for parent in module.parents(node) if isinstance(parent, ast.If)]
    missing = any(
        isinstance(n, ast.Attribute) and "pad_token" in n.attr
        for test in tests
        for n in ast.walk(test)
    )
    text = module.flow.value(value)
    is_eos = _is_eos_or_its_id(module, value) or (
        isinstance(text, str)
        and (
            (eos is not None and text == module.flow.value(eos))
            or _is_eos_of_each_model(module, text, node, tokenizer)
        )
    )
    return PadSetting(
        # scopes.arms: the branches that a statement stands in.
        node,
        value,
        tokenizer,
        scopes.of[node],
        bool(scopes.arms[node]),
        is_eos,
        missing,
    )


def tokenizer_sources(module: Module, tokenizer: ast.expr | None) -> frozenset[ast.AST]:
    """The calls that may have made a tokenizer, in this file or in one that it is judged with."""
    origins = module.flow.origins(tokenizer) if tokenizer is not None else ()
    return frozenset(
        origin.node
        for origin in origins
        if isinstance(origin.node, ast.Call) and not origin.element
    )


def sources_of_setting(module: Module, setting: PadSetting) -> frozenset[ast.AST]:
    """The calls that may have made the tokenizer of a setting; one that is loaded with its pad is
    its own source.
    """
    return (
        frozenset((setting.node,))
        if setting.tokenizer is None
        else tokenizer_sources(module, setting.tokenizer)
    )


def is_setting_of_tokenizer_in_other_file(
    module: Module, setting: PadSetting, home: Module, tokenizer: ast.expr | None
) -> bool:
    """Does a place in another file have the tokenizer of a setting?

    One that a function makes is another at each of its calls, where the setting does not stand in
    that function.
    """
    if sources_of_setting(module, setting).isdisjoint(tokenizer_sources(home, tokenizer)):
        return False
    if setting.tokenizer is None or tokenizer is None:
        return True
    set_on, used = (
        module.flow.calls_value_passes_from_origins(setting.tokenizer),
        home.flow.calls_value_passes_from_origins(tokenizer),
    )
    # Without a call in between the tokenizer is the same object in both places.
    return not set_on or not used or not set_on.isdisjoint(used)


def _is_tokenizer(module: Module, node: ast.expr) -> bool:
    """Is it a tokenizer or a processor, by what made it, else by its name?"""
    if module.flow.types(node) & {"tokenizer", "processor"}:
        return True
    last = (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else ""
    )
    # A name alone says it where flow knows nothing: parameters of functions that nobody calls here.
    return not module.flow.types(node) and last in ("tokenizer", "tok", "processing_class")


def _is_eos_or_its_id(module: Module, value: ast.expr) -> bool:
    """Is it the EOS token or its id?"""
    if module.flow.value(value) in EOS_TEXTS:
        return True
    nodes = [origin.node for origin in module.flow.origins(value)]
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("eos_token", "eos_token_id")
        for node in nodes
    )


def _is_eos_of_each_model(
    module: Module, text: str, node: ast.AST, tokenizer: ast.expr | None
) -> bool:
    """Is a text the EOS of each model that the tokenizer may be of?"""
    # A tokenizer that is loaded with its pad is made by the very call that sets it.
    loaded = tokenizer if tokenizer is not None else node
    if not isinstance(loaded, ast.expr) or not text.startswith("<"):
        return False
    names = likely_model_names(module, loaded)
    return bool(names) and all(eos_of_model(name) == text for name in names)


def changes_setting_pad_token(module: Module, setting: PadSetting, token: str | None) -> Changes:
    """The pad token set to a token of the vocabulary; without one, a new one is added and the model
    resized.
    """
    if token is None:
        return _changes_adding_pad_token(module, setting)
    if _sets_pad_id(module, setting):
        if setting.tokenizer is None:
            return ()
        return replace_expression(
            module,
            setting.value,
            f'{module.text_of(setting.tokenizer)}.convert_tokens_to_ids("{token}")',
        )
    return replace_expression(module, setting.value, f'"{token}"')


def _sets_pad_id(module: Module, setting: PadSetting) -> bool:
    """Is it the id that is set, and not the token?"""
    if isinstance(setting.node, ast.Assign):
        targets = (target for target in setting.node.targets if isinstance(target, ast.Attribute))
        return any(target.attr == "pad_token_id" for target in targets)
    call = module.flow.call(setting.node) if isinstance(setting.node, ast.Call) else None
    return (
        call is not None
        and call.named("setattr")
        and module.flow.value(call.args[1]) == "pad_token_id"
    )


def _changes_adding_pad_token(module: Module, setting: PadSetting) -> Changes:
    """The changes that add a pad token of its own and resize the model; none where the model is not
    in sight.
    """
    node = setting.node
    if not isinstance(node, ast.Assign) or setting.tokenizer is None or len(node.targets) != 1:
        return ()
    loads = list(_model_load_assignments_in_same_scope(module, setting))
    if len(loads) != 1:
        return ()
    load = loads[0]
    tokenizer, name = module.text_of(setting.tokenizer), module.text_of(load.targets[0])
    # Never fewer rows than there are: many models have more rows than tokens, and a smaller embedding no longer loads.
    resize = (
        f"{name}.resize_token_embeddings(max(len({tokenizer}),"
        f" {name}.get_input_embeddings().weight.shape[0]))"
    )
    last = _statement_of_scope(module, setting, node if node.lineno > load.lineno else load)
    added = insert_statements_after(module, last, resize) if last is not None else ()
    if not added:
        return ()
    token = f'{tokenizer}.add_special_tokens({{"pad_token": "<|pad|>"}})'
    return (*replace_expression(module, node, token), *added)


def _model_load_assignments_in_same_scope(
    module: Module, setting: PadSetting
) -> Iterator[ast.Assign]:
    """Assignments of a model that is loaded to a name, in the scope of the setting."""
    for node in module.nodes(ast.Assign):
        if not isinstance(node.targets[0], ast.Name) or not isinstance(node.value, ast.Call):
            continue
        is_load = module.flow.call(node.value).named(
            "transformers.*.from_pretrained", "transformers.*.from_config"
        )
        is_model = is_load and "model" in module.flow.types(node.value)
        if is_model and module.scopes.of[node] is setting.scope:
            yield node


def _statement_of_scope(module: Module, setting: PadSetting, last: ast.stmt) -> ast.stmt | None:
    """The statement directly in the setting's scope that holds `last`: a line behind it runs on
    every branch.
    """
    while module.scopes.parent[last] is not setting.scope.node:
        parent = module.scopes.parent[last]
        if not isinstance(parent, ast.stmt):
            return None
        last = parent
    return last
