"""Finds files that serve a model by another chat template than the script beside them trains it
with.

The template of a training is told by its first mark before a question: what `get_chat_template` is
given, else what the published template of the model's family writes. That of a server is read from
TEMPLATE of a Modelfile, or from `--chat-template` of vLLM and llama.cpp.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from truetune.checks.config.evidence.template_marks_before_questions import (
    first_mark_without_role,
    mark_before_question_in_template,
    mark_before_question_of_model,
)
from truetune.checks.find_uses_of_weight_folders import find_weight_uses
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.prompt_forms import (
    FOLDERS,
    PromptForm,
    is_model_in_written_folders,
    loaded_model_names,
    model_folders_written,
    single_prompt_form,
    training_scripts_beside,
    trains_a_model,
)
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import likely_model_names
from truetune.parsing.read_ollama_modelfile import is_modelfile_name
from truetune.parsing.shell_commands import is_command_file
from truetune.settings.config import WeightUse
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

OWN_TEMPLATE = re.compile(r"\.chat_template\s*=[^=]|clone_chat_template")
"""A script that gives its tokenizer another template: what that writes is not seen here"""
PLACES = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
BARE = "the bare question"
MAX_FILES = 40
"""Of the files around a script that may serve"""


class ServedByOtherTemplate(NamedTuple):
    """A file that serves what a script trains, by another template."""

    use: WeightUse
    served: str
    """The mark that it writes before a question, or BARE"""
    trained: str
    """The mark of the training"""
    node: ast.AST
    """Where the training says so"""


def served_by_other_templates(module: Module) -> Iterator[ServedByOtherTemplate]:
    """What serves the model of a training script in another form, each file once."""
    form = single_prompt_form(module) if trains_a_model(module) else None
    if form is None:
        return
    marks = _marks_before_question_or_answer(module, form)
    if not marks:
        return
    seen: set[str] = set()
    for use in find_weight_uses([module.path, *_modelfiles_and_commands_around(Path(module.path))]):
        served = (
            _marker_server_writes_before_question(use)
            if use.template and use.file not in seen
            else None
        )
        # A server's template may hold the mark of the training further down: it then knows both forms.
        if served is None or served in marks or any(mark in use.template for mark in marks):
            continue
        if _serves_trained_model(use, module):
            seen.add(use.file)
            yield ServedByOtherTemplate(use, served, ", ".join(sorted(marks)), form.node)


class AskedByOtherTemplate(NamedTuple):
    """A file that asks by one named template what another trains by another."""

    asked: str
    """The mark that it writes before a question"""
    node: ast.AST
    trained: str
    training: Module
    place: ast.AST
    """Where the training says so"""


def templates_before_asking_unlike_training(module: Module) -> Iterator[AskedByOtherTemplate]:
    """The template that a file gives its tokenizer before it asks, where the training gave it one
    of another family.
    """
    if trains_a_model(module):
        return
    named = [(call, mark) for call, mark in _template_calls_with_marks(module) if mark is not None]
    if len({mark for _, mark in named}) != 1:
        return
    call, asked_mark = named[0]
    loaded = loaded_model_names(module) | _models_loaded_by_unsloth(module)
    for training in training_scripts_beside(module):
        folders = model_folders_written(training)
        if not any(is_model_in_written_folders(name, folders) for name in loaded):
            continue
        form, trained = single_prompt_form(training), _single_template_mark(training)
        if form is not None and trained is not None and trained != asked_mark:
            yield AskedByOtherTemplate(asked_mark, call.node, trained, training, form.node)


def _single_template_mark(module: Module) -> str | None:
    """The mark of the template that a file names; None where it names several, or one that is not
    known.
    """
    marks = {mark for _, mark in _template_calls_with_marks(module)}
    return marks.pop() if len(marks) == 1 else None


def _models_loaded_by_unsloth(module: Module) -> frozenset[str]:
    """The names of the models that Unsloth loads:
    `FastLanguageModel.from_pretrained(model_name=...)`.
    """
    names = (call.keywords.get("model_name") for call in module.calls("*.from_pretrained"))
    return frozenset(text for node in names for text in possible_texts(module, node))


def _template_calls_with_marks(module: Module) -> Iterator[tuple[Call, str | None]]:
    """The calls that give a tokenizer a template by its name, with its first mark; None where it is
    unknown.
    """
    for call in module.calls("*.get_chat_template"):
        node = call.argument(1, "chat_template")
        value = module.flow.value(node) if node is not None else None
        yield call, mark_before_question_in_template(value) if isinstance(value, str) else None


def _marks_before_question_or_answer(module: Module, form: PromptForm) -> frozenset[str]:
    """What stands before a question, or of a prompt by hand before its answer; empty where it is
    not known.
    """
    if form.marks:
        return form.marks
    named = list(_template_calls_with_marks(module))
    if named:
        known = {mark for _, mark in named}
    elif any(module.calls("*.setup_chat_format")):
        known = {mark_before_question_in_template("chatml")}
    elif OWN_TEMPLATE.search(module.text):
        return frozenset()
    else:
        known = {mark_before_question_of_model(name) for name in likely_model_names(module, None)}
    marks = {mark for mark in known if mark is not None}
    return frozenset(marks) if len(marks) == len(known) == 1 else frozenset()


def _marker_server_writes_before_question(use: WeightUse) -> str | None:
    """The first mark that a server writes before a question; None where it is not known."""
    mark = mark_before_question_in_template(use.template)
    if mark is None and "{{" in use.template and not PLACES.sub("", use.template).strip():
        return BARE
    return first_mark_without_role(mark) if mark is not None else None


def _serves_trained_model(use: WeightUse, module: Module) -> bool:
    """Is it what this script trained: a folder that it writes, or weights of one's own where no
    other script trains?
    """
    folders = model_folders_written(module)
    if any(is_model_in_written_folders(folder, folders) for folder in use.folders):
        return True
    of_its_own = all(Path(folder).suffix == ".gguf" for folder in use.folders)
    return bool(use.folders) and of_its_own and not any(training_scripts_beside(module))


def _modelfiles_and_commands_around(script: Path) -> list[Path]:
    """The Modelfiles and commands of a script's folder, of those below it, and of the project above
    `train/`.
    """
    roots = [script.parent]
    if script.absolute().parent.name.lower() in FOLDERS:
        roots.append(script.parent / "..")
    folders = [place for root in roots for place in (root, *_visible_folders_in(root))]
    files = (path for folder in dict.fromkeys(folders) for path in _folder_entries(folder))
    serving = (path for path in files if is_modelfile_name(path) or is_command_file(path))
    return list(islice((path for path in serving if path.is_file()), MAX_FILES))


def _visible_folders_in(folder: Path) -> list[Path]:
    """The folders in a folder, but for hidden ones."""
    return [path for path in _folder_entries(folder) if path.is_dir() and path.name[0] != "."]


def _folder_entries(folder: Path) -> list[Path]:
    """The entries of a folder by name, up to a limit; none where it can't be read."""
    try:
        return sorted(Path(entry.path) for entry in islice(os.scandir(folder), 300))
    except OSError:
        return []
