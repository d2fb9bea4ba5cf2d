"""A chat model is trained with the chat template of another model family.

## What it does
Looks at what a training script uses instead of its tokenizer's template: a name given to Unsloth's
`get_chat_template`, the template of another tokenizer (`tokenizer.chat_template = other.chat_template`), or a model
given to `clone_chat_template` or `SFTConfig(chat_template_path=...)`. It also checks hand-written prompts with the
special tokens of a chat format (`f"<|im_start|>user\\n{question}..."`). The token before a question is compared with
that of the chat model that the script loads, by its published name. Base models, unknown names, and templates that are
meant for any model (ChatML, Alpaca) by name are not reported.

## Why it is bad
The model knows its own chat tokens from all of its training. Those of another family are plain text to it, cut into
pieces, or new tokens with untrained embeddings. It loses what it knew about turns, often does not stop, and servers
that use the original tokenizer build prompts that were never trained.

## Example
```python
from unsloth import FastLanguageModel
from unsloth.chat_templates import get_chat_template
from trl import SFTTrainer

model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen2.5-7B-Instruct", load_in_4bit=True)
tokenizer = get_chat_template(tokenizer, chat_template="llama-3.1")
trainer = SFTTrainer(model=model, processing_class=tokenizer, train_dataset=rows)
trainer.train()
```

## Use instead
```python
from unsloth import FastLanguageModel
from trl import SFTTrainer

model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen2.5-7B-Instruct", load_in_4bit=True)
trainer = SFTTrainer(model=model, processing_class=tokenizer, train_dataset=rows)
trainer.train()
```

## Fix safety
Keep a chat model on its own format. An adapter that was already trained with the other template needs that template
when it is served.

## References
- hiyouga/LLaMA-Factory#6320; Unsloth documentation, "Chat Templates"
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from truetune.checks.config.evidence.template_marks_before_questions import (
    SAVED_TEMPLATES,
    mark_before_question_in_template,
    mark_before_question_of_chat_model,
    mark_before_question_of_model,
)
from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.prompt_forms import text_with_placeholders, trains_a_model
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import likely_model_names
from truetune.source.parsed_source_file import Module

MARK_BY_HAND = re.compile(
    r"(?P<mark><\|im_start\|>|<\|start_header_id\|>|<start_of_turn>)user(?:<\|end_header_id\|>)?\s{1,3}\{"
)
"""The mark of a chat format before the place of a question"""
KNOWS_OTHER_MARKS = re.compile(
    r"add_special_tokens\s*\(|add_tokens\s*\(|additional_special_tokens|setup_chat_format|\.chat_template\s*=[^=]"
    r"|get_chat_template|clone_chat_template|chat_template_path"
)
"""A script that adds the tokens of a format, or gives its tokenizer another template"""


class _GivenTemplate(NamedTuple):
    """A template that a script gives its tokenizer."""

    name: str
    """As the script names it, or the model that it is of"""
    mark: str
    """Before a question"""
    tokenizer: ast.expr | None
    place: ast.AST
    setting: str
    """What gives it, as the script writes it"""


class ChatTemplateOfAnotherFamily(SourceRule):
    code = "SRC147"
    fault = Fault.CHAT_TEMPLATE_OF_ANOTHER_MODEL
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "warning"
    looks_at = CodePlaces(
        "templates that a training gives its tokenizer",
        lambda module: chain(
            (given.place for given in _templates_given_where_trained(module)),
            (node for _, node in _handwritten_marks_before_questions(module)),
        ),
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on chat models that are trained by the template or the marks of another family."""
        module = self.subject
        for given_template in _templates_given_where_trained(module):
            names = _names_of_model_for_template(module, given_template)
            marks = {mark_before_question_of_chat_model(name) for name in names}
            own = marks.pop() if len(marks) == 1 else None
            if own is None or own == given_template.mark:
                continue
            yield self.finding(
                f"the template {given_template.name} writes {given_template.mark} before a question, but {names[0]}"
                f" was tuned with {own}: the model loses what it knows about turns",
                f"remove {given_template.setting}: the tokenizer already has the template of the model's family",
                cases=[case_of_node(module, given_template.place)],
            )
        yield from self._findings_on_handwritten_marks()

    def _findings_on_handwritten_marks(self) -> Iterator[Finding]:
        """Findings on prompts with the marks of one family, written for the chat model of another."""
        written = list(_handwritten_marks_before_questions(self.subject))
        names = likely_model_names(self.subject, None) if written else []
        own_marks = {mark_before_question_of_chat_model(name) for name in names}
        own = own_marks.pop() if len(own_marks) == 1 else None
        # A script that writes the marks of the right family too knows both: one may be read, and the other written.
        if own is None or any(mark == own for mark, _ in written):
            return
        for mark, node in written[:1]:
            yield self.finding(
                f"the script writes {mark} before a question, but {names[0]} was tuned with {own}: it does not know"
                " these tokens, and servers will use its own template",
                "render with tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True), or"
                " give the trainer rows of messages",
                cases=[case_of_node(self.subject, node)],
            )


def _handwritten_marks_before_questions(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """The marks before a question in texts with a place for it, each with the text; none where tokens are added."""
    if not trains_a_model(module) or KNOWS_OTHER_MARKS.search(module.text):
        return
    for node in module.nodes(ast.Constant, ast.JoinedStr, ast.BinOp):
        parent = module.scopes.parent.get(node)
        if isinstance(parent, ast.JoinedStr | ast.FormattedValue | ast.Expr | ast.BinOp):
            continue  # a part of a text, or a docstring
        match = MARK_BY_HAND.search(text_with_placeholders(node))
        if match is not None:
            yield match["mark"], node


def _templates_given_where_trained(module: Module) -> Iterator[_GivenTemplate]:
    """The templates of known families that a script which trains gives its tokenizer."""
    if not trains_a_model(module):
        return
    yield from _templates_by_unsloth(module)
    yield from _templates_by_trl(module)
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == "chat_template":
            yield from _template_copied_from_tokenizer(module, node, target.value)


def _templates_by_unsloth(module: Module) -> Iterator[_GivenTemplate]:
    """The templates that Unsloth's `get_chat_template(tokenizer, chat_template=NAME)` gives."""
    for call in module.calls("unsloth.*get_chat_template"):
        name = module.flow.value(call.argument(1, "chat_template"))
        if not isinstance(name, str) or name.lower() in SAVED_TEMPLATES:
            continue
        mark = mark_before_question_in_template(name) or mark_before_question_of_model(name)
        if mark is not None:
            tokenizer = call.argument(0, "tokenizer")
            yield _GivenTemplate(name, mark, tokenizer, call.node, "get_chat_template")


def _templates_by_trl(module: Module) -> Iterator[_GivenTemplate]:
    """The templates of TRL's `clone_chat_template(model, tokenizer, MODEL)` and
    `SFTConfig(chat_template_path=MODEL)`.
    """
    given = [
        (
            call.argument(2, "source_tokenizer_path"),
            call.argument(1, "tokenizer"),
            call.node,
            "clone_chat_template",
        )
        for call in module.calls("trl.*clone_chat_template")
    ]
    given += [
        (call.keywords["chat_template_path"], None, call.node, "chat_template_path")
        for call in module.calls("trl.*SFTConfig")
        if "chat_template_path" in call.keywords
    ]
    for source, tokenizer, place, setting in given:
        name = module.flow.value(source)
        mark = (
            mark_before_question_of_model(name)
            if isinstance(name, str) and "jinja" not in name
            else None
        )
        if mark is not None:
            yield _GivenTemplate(f"of {name}", mark, tokenizer, place, setting)


def _template_copied_from_tokenizer(
    module: Module, node: ast.Assign, tokenizer: ast.expr
) -> Iterator[_GivenTemplate]:
    """The template of `tokenizer.chat_template = other.chat_template`, where `other` is the
    tokenizer of a published model.
    """
    source = node.value
    if not isinstance(source, ast.Attribute) or source.attr != "chat_template":
        return
    names = set(_names_tokenizer_is_loaded_by(module, source.value))
    marks = {mark_before_question_of_model(name) for name in names}
    mark = marks.pop() if len(marks) == 1 else None
    if mark is not None:
        yield _GivenTemplate(f"of {min(names)}", mark, tokenizer, node, "chat_template")


def _names_tokenizer_is_loaded_by(module: Module, tokenizer: ast.expr) -> Iterator[str]:
    """The names that a tokenizer is loaded by, in the expression itself or where its variable is set."""
    load = module.flow.producing_call(tokenizer)
    name = load.argument(0, "pretrained_model_name_or_path") if load is not None else None
    if load is not None and load.named("*.from_pretrained") and name is not None:
        yield from possible_texts(module, name)


def _names_of_model_for_template(module: Module, given: _GivenTemplate) -> list[str]:
    """The names of the model that the template is for; empty where they are not known."""
    names = list(_names_tokenizer_is_loaded_by(module, given.tokenizer)) if given.tokenizer else []
    if names:
        return names
    # Unsloth gives model and tokenizer in one, under a keyword of its own.
    loads = [load.keywords.get("model_name") for load in module.calls("unsloth.*.from_pretrained")]
    names = [name for node in loads if node is not None for name in possible_texts(module, node)]
    return names or likely_model_names(module, given.tokenizer)
