"""Finds the places that set the pad token to EOS, and whose setting holds when a training begins."""

from __future__ import annotations

import ast

from truetune.checks.source.evidence.double_bos import GivenChatTemplate
from truetune.checks.source.evidence.pad_token_settings_and_edits_that_change_them import (
    PadSetting,
    pad_settings,
    sources_of_setting,
)
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    likely_families_of_tokenizer,
)
from truetune.source.parsed_source_file import Module


def _is_set_after_training(module: Module, setting: PadSetting) -> bool:
    """Is it set on a tokenizer that is made after the last training of the same scope? No trainer
    gets that one.
    """
    trained = [
        call.node.lineno
        for call in module.methods("train")
        if "trainer" in module.flow.types(call.receiver)
        and module.scopes.of[call.node] is setting.scope
    ]
    made = module.flow.producing_call(setting.tokenizer)
    if not trained or made is None or module.scopes.of[made.node] is not setting.scope:
        return False
    return made.node.lineno > max(trained)


def eos_pad_settings_at_training(module: Module) -> list[PadSetting]:
    """The settings that hold when a training begins; of several of one tokenizer in one branch, the
    first.
    """
    settings = [
        one
        for one in pad_settings(module)
        if not (
            _is_set_after_training(module, one) or _is_fallback_where_model_has_pad(module, one)
        )
    ]
    template = GivenChatTemplate(module)
    settings = [one for one in settings if not _eos_is_in_no_row(module, one, template)]
    settings = [one for one in settings if not _is_pad_replaced_in_linked_file(module, one)]
    kept: dict[tuple[object, ...], PadSetting] = {}
    for number, setting in enumerate(settings):
        if setting.eos and not any(
            later.replaces_earlier(setting) for later in settings[number + 1 :]
        ):
            kept.setdefault(_tokenizer_and_branch(module, setting), setting)
    return list(kept.values())


def _is_pad_replaced_in_linked_file(module: Module, setting: PadSetting) -> bool:
    """Does a file that runs with this one give the same tokenizer another pad in any case?"""
    sources = sources_of_setting(module, setting) if setting.eos else frozenset()
    return any(
        not other.eos
        and not other.conditional
        and not sources.isdisjoint(sources_of_setting(part, other))
        for part in module.self_and_files_run_together[1:]
        for other in (pad_settings(part) if sources and "pad_token" in part.text else ())
    )


def _tokenizer_and_branch(module: Module, setting: PadSetting) -> tuple[object, ...]:
    """The tokenizer, as it is written, and the branch in which its text or its id is set."""
    statement = module.statement(setting.node)
    if setting.tokenizer is None or statement is None or not setting.conditional:
        return (setting.node,)
    return (module.text_of(setting.tokenizer), module.scopes.parent.get(statement))


def _is_fallback_where_model_has_pad(module: Module, setting: PadSetting) -> bool:
    """Is it set only where there is no pad, on a model that is known to have one?"""
    known = likely_families_of_tokenizer(module, setting.tokenizer) if setting.if_missing else []
    return bool(known) and all(one is not None and one.has_pad for one in known)


def _eos_is_in_no_row(module: Module, setting: PadSetting, template: GivenChatTemplate) -> bool:
    """Is EOS in no row, since the file's chat template ends turns with another token and nothing
    else adds EOS?
    """
    if not template.texts or any(_sets_eos(node) for node in module.nodes(ast.Attribute)):
        return False
    ends = {
        one.eos if one else None for one in likely_families_of_tokenizer(module, setting.tokenizer)
    }
    if not ends or None in ends or _uses_eos_beyond_padding(module):
        return False
    return not any(end in text for text in template.texts for end in (*ends, "eos_token") if end)


def _sets_eos(node: ast.Attribute) -> bool:
    """Is `eos_token` or its id set here, and not read?"""
    return isinstance(node.ctx, ast.Store) and node.attr.startswith("eos_token")


def _uses_eos_beyond_padding(module: Module) -> bool:
    """Is EOS read for more than a pad token, and for a generation that ends with it?"""
    pads = {child for one in pad_settings(module) for child in ast.walk(one.node)}
    pads |= {child for call in module.methods("generate") for child in ast.walk(call.node)}
    return any(
        node.attr.startswith("eos_token") and node not in pads
        for node in module.nodes(ast.Attribute)
    )


def with_repeated_settings(module: Module, reached: list[PadSetting]) -> list[PadSetting]:
    """Each setting, and those of the same tokenizer in the same function, which say the same again
    by the id.
    """
    functions = {
        (_text_of_tokenizer(module, one), one.scope) for one in reached if one.tokenizer is not None
    }
    return [
        one
        for one in pad_settings(module)
        if one.eos and (one in reached or (_text_of_tokenizer(module, one), one.scope) in functions)
    ]


def _text_of_tokenizer(module: Module, setting: PadSetting) -> str | None:
    """The tokenizer of a setting, as the code spells it."""
    return module.text_of(setting.tokenizer) if setting.tokenizer is not None else None
