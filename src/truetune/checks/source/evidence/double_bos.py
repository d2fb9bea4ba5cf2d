"""Says whether a model's tokenizer and its chat template both write BOS, so that rendered text gets
two.
"""

from __future__ import annotations

import ast
from enum import Enum

from truetune.checks.source.evidence.prompt_forms import (
    is_model_in_written_folders,
    model_folders_written,
    training_scripts_beside,
    training_settings_beside,
)
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    ModelFamily,
    family_named_in_derivative,
    family_of_model,
    likely_model_names,
    model_names_of_tokenizer,
)
from truetune.errors import TruetuneError
from truetune.render.find_tokenizer_folder import find_tokenizer_folder
from truetune.render.template_probes import (
    ANSWER,
    QUESTION,
    alternating_chat,
    load_tokenizer_and_template_of_run,
)
from truetune.settings.run_spec import RunSpec
from truetune.source.parsed_source_file import Module

NEW_TEMPLATES = ("get_chat_template", "setup_chat_format", "clone_chat_template")
"""Functions that give a tokenizer another chat template"""
WRITES_BOS = ("bos_token", "<s>", "<bos>", "<|begin_of_text|>")
"""What a template that writes BOS holds"""


class BosCount(Enum):
    """How many BOS text has that was rendered, and then tokenized with special tokens."""

    ONE = "one at most"
    TWO = "two"
    UNKNOWN = "unknown"


class GivenChatTemplate:
    """The chat template that a file gives its tokenizers, if any."""

    def __init__(self, module: Module) -> None:
        set_to = _chat_templates_set_even_if_one_exists(module)
        called = {
            name.rpartition(".")[2]
            for call in module.all_calls
            for name in (*call.names, call.method or "")
        }
        self.texts = [value for node in set_to if isinstance(value := module.flow.value(node), str)]
        """Those that are written in the file"""
        written = {any(bos in text for bos in WRITES_BOS) for text in self.texts}
        self.replaced = bool(set_to) or not called.isdisjoint(NEW_TEMPLATES)
        self.writes_bos = written.pop() if len(written) == 1 else None
        """None: not known"""


def bos_count_of_rendered_text(
    module: Module, tokenizer: ast.expr | None, template: GivenChatTemplate
) -> BosCount:
    """What is known of the model by its files, else by its name, with the template that the file
    gives it.

    Of several models that are named, one that gets two is enough.
    """
    of_files = _tokenizer_and_template_bos_by_files(module, tokenizer)
    known = (
        [of_files]
        if of_files is not None
        else _tokenizer_and_template_bos_by_model_names(module, tokenizer)
    )
    if template.replaced:
        known = [(adds, template.writes_bos) for adds, _ in known]
    if any(adds and writes for adds, writes in known):
        return BosCount.TWO
    return (
        BosCount.ONE
        if known and all(adds is False or writes is False for adds, writes in known)
        else BosCount.UNKNOWN
    )


def _tokenizer_and_template_bos_by_files(
    module: Module, tokenizer: ast.expr | None
) -> tuple[bool, bool] | None:
    """Whether the tokenizer adds BOS, and whether its template writes it, by the files of the one
    tokenizer that is named; None where they are not here.
    """
    names = model_names_of_tokenizer(module, tokenizer)
    if len(names) != 1:
        return None
    try:
        if not (find_tokenizer_folder(names[0]) / "tokenizer.json").is_file():
            return None
        probes = load_tokenizer_and_template_of_run(RunSpec(tokenizer=names[0]))
        text = probes.text(alternating_chat(QUESTION, ANSWER))
    except (TruetuneError, OSError, ValueError):
        return None
    bos = probes.tokenizer.special.get("bos")
    if text is None or bos is None:
        return None
    first = probes.tokenizer.backend.encode(QUESTION, add_special_tokens=True).ids[:1]
    return first == [bos.id], text.startswith(bos.token)


def _tokenizer_and_template_bos_by_model_names(
    module: Module, tokenizer: ast.expr | None
) -> list[tuple[bool | None, bool | None]]:
    """Whether the tokenizer adds BOS, and whether its template writes it, by the name of each model
    that it may be of.
    """
    known = [
        family_of_base_model_trained_into_folder(module, name)
        or family_of_model(name)
        or family_named_in_derivative(name)
        for name in likely_model_names(module, tokenizer)
    ]
    return [(one.adds_bos, one.template_writes_bos) if one else (None, None) for one in known] or [
        (None, None)
    ]


def family_of_base_model_trained_into_folder(module: Module, name: str) -> ModelFamily | None:
    """What is known of the model that a training beside the file began with, where it wrote this
    folder.
    """
    bases = [
        one.base
        for one in training_settings_beside(module)
        if is_model_in_written_folders(name, frozenset((one.output,)))
    ]
    for script in training_scripts_beside(module):
        if is_model_in_written_folders(name, model_folders_written(script)):
            bases += likely_model_names(script, None)
    return family_of_model(bases[0]) if len(bases) == 1 else None


def _chat_templates_set_even_if_one_exists(module: Module) -> list[ast.expr]:
    """The values that `tokenizer.chat_template` is set to, unless only where the tokenizer has
    none.
    """
    return [
        node.value
        for node in module.nodes(ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
        and target.attr == "chat_template"
        and not _is_template_set_only_if_missing(module, node)
    ]


def _is_template_set_only_if_missing(module: Module, node: ast.AST) -> bool:
    """Is it set under a condition that asks whether there is a template?"""
    tests = (around.test for around in module.parents(node) if isinstance(around, ast.If))
    return any(
        isinstance(part, ast.Attribute) and part.attr == "chat_template"
        for t in tests
        for part in ast.walk(t)
    )
