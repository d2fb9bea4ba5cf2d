"""Finds how a script masks labels by a response marker: `train_on_responses_only`, a collator of
completions.

Such labels depend on a text that must stand in every rendered row. The marker is kept only where the tokenizer's own
template is sure to render the rows; a script that writes turns itself, or replaces the template, may use any marker,
and a rule that compared it with the template would be wrong.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

UNSLOTH_RESPONSE_MASKING = (
    "unsloth.*train_on_responses_only",
    "unsloth_zoo.*train_on_responses_only",
)
"""Unsloth's function that labels answers only, under the names of both its packages"""
UNSLOTH_TEMPLATE_CALL = "unsloth.*get_chat_template"
"""Gives a tokenizer another template"""
TRL_COMPLETION_COLLATOR = "trl.DataCollatorForCompletionOnlyLM"
"""TRL's collator that labels what follows a marker"""
TURN_START_OF_TEMPLATE = {
    "chatml": "<|im_start|>",
    "qwen": "<|im_start|>",
    "llama-3": "<|start_header_id|>",
    "llama3": "<|start_header_id|>",
    "gemma-3": "<start_of_turn>",
}
"""How the names of Unsloth's templates begin (`unsloth/chat_templates.py`), and what opens each turn there; of other
names nothing is known"""


@dataclass(frozen=True, slots=True)
class ResponseMasking:
    """The script labels the answers by a marker before them."""

    last_only: bool
    """Only the last answer of a conversation is labelled"""
    marker: str | None
    """The marker, where the rows are sure to be rendered without the script's own text; None: it is not known whether
    a row of the trainer holds it"""


def find_response_masking(module: Module) -> ResponseMasking | None:
    """How a script labels answers by markers; None where it does not."""
    call = next(module.calls(*UNSLOTH_RESPONSE_MASKING), None)
    if call is not None:
        last_only = module.flow.value(call.keywords.get("last_response_only")) is True
        return ResponseMasking(
            last_only, _marker_if_template_shows_it(module, call.argument(2, "response_part"))
        )
    collator = next(module.calls(TRL_COMPLETION_COLLATOR), None)
    if collator is None:
        return None
    marker = _marker_if_template_shows_it(module, collator.argument(0, "response_template"))
    # Without a template of instructions the collator searches the last marker alone.
    several = "instruction_template" in collator.keywords
    return ResponseMasking(not several, marker)


def _marker_if_template_shows_it(module: Module, argument: ast.expr | None) -> str | None:
    """The marker that a script gives, where the tokenizer's template shows whether rows hold it.

    A row that the script writes by a format of its own may hold any marker; so may one of a template that the script
    puts in the tokenizer's place, but where this template is known to open its turns otherwise.
    """
    marker = module.flow.value(argument) if argument is not None else None
    if argument is None or not isinstance(marker, str) or not marker.strip():
        return None
    if (
        assigns_chat_template(module)
        or writes_marker_in_own_text(module, marker)
        or not _renders_chats_before_marker(module, argument)
    ):
        return None
    # Of a template that Unsloth puts in place only the sign that opens a turn is known. A marker without it stands in
    # no row; of a marker with it no more can be said.
    replaced = next(module.calls(UNSLOTH_TEMPLATE_CALL), None)
    if replaced is None:
        return marker
    mark = _turn_start_of_unsloth_template(module, replaced)
    return marker if mark is not None and mark not in marker else None


def _turn_start_of_unsloth_template(module: Module, replaced: Call) -> str | None:
    """What opens a turn in the template that a script asks Unsloth for; None where it is not known."""
    name = module.flow.value(replaced.argument(1, "chat_template"))
    if not isinstance(name, str):
        return None
    return next((mark for of, mark in TURN_START_OF_TEMPLATE.items() if name.startswith(of)), None)


def _renders_chats_before_marker(module: Module, marker_argument: ast.expr) -> bool:
    """Does the script render conversations by a chat template before it gives the marker? Behind it, and with a
    generation prompt, it asks the trained model."""
    return any(
        call.node.lineno < marker_argument.lineno
        and module.flow.value(call.keywords.get("add_generation_prompt")) is not True
        for call in module.methods("apply_chat_template")
    )


def writes_marker_in_own_text(module: Module, marker: str) -> bool:
    """Does the script write the marker in a text of its own too?"""
    texts = [node.value for node in module.nodes(ast.Constant) if isinstance(node.value, str)]
    return sum(marker.strip() in text for text in texts) > 1


def assigns_chat_template(module: Module) -> bool:
    """Does the script give the tokenizer a template itself: `tokenizer.chat_template = ...`?"""
    return any(
        isinstance(target, ast.Attribute) and target.attr == "chat_template"
        for node in module.nodes(ast.Assign)
        for target in node.targets
    )
