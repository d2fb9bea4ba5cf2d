"""The marker that a script uses to find the answers belongs to another model family.

## What it does
Looks at the marker that a script searches for to set its labels (`tokenizer.encode("[/INST]")`,
`text.find("<|im_start|>assistant")`, `response_part` of Unsloth, `response_template` of TRL). It applies if rows are
rendered by the chat template of the loaded model, and the name of that model, or Unsloth's `get_chat_template`, says
which template it is. The marker of prompts (`instruction_part`, `instruction_template`) is compared too, by its family
and by its role. It does not fire if the script writes the marker in a text of its own, sets a template, or loads an
unknown model.

## Why it is bad
The marker is never found. A collator that then masks the whole row leaves no label: the loss is 0.0 or NaN from the
first step. One that does not mask the row trains on the prompts as well. If the marker of prompts is never found,
nothing ends an answer: Unsloth labels everything after the first marker, and the model learns to write the user's
turns.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-1.7B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-1.7B")
marker = tokenizer.encode("[/INST]", add_special_tokens=False)


def encode(row):
    ids = tokenizer.apply_chat_template(row["messages"], return_dict=False)
    starts = [i for i in range(len(ids)) if ids[i : i + len(marker)] == marker]
    begin = starts[-1] + len(marker) if starts else len(ids)
    return {"input_ids": ids, "labels": [-100] * begin + ids[begin:]}
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-1.7B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-1.7B")
marker = tokenizer.encode("<|im_start|>assistant\\n", add_special_tokens=False)


def encode(row):
    ids = tokenizer.apply_chat_template(row["messages"], return_dict=False)
    starts = [i for i in range(len(ids)) if ids[i : i + len(marker)] == marker]
    begin = starts[-1] + len(marker) if starts else len(ids)
    return {"input_ids": ids, "labels": [-100] * begin + ids[begin:]}
```

## Fix safety
Safe: the new marker is what the model's own template writes before an answer; `truetune show` prints it. More tokens
get labels, so train again.

## References
- unslothai/unsloth#2095, huggingface/trl#588, unslothai/unsloth#823
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.response_markers import (
    ResponseMarker,
    markers_searched_to_set_labels,
    texts_searched_by_call,
)
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    likely_model_names,
    normalized_model_name,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.response_marker_masking import (
    TRL_COMPLETION_COLLATOR,
    UNSLOTH_RESPONSE_MASKING,
    UNSLOTH_TEMPLATE_CALL,
    assigns_chat_template,
)

OPENINGS = (
    (r"(qwen|qwq)", "<|im_start|>assistant\n"),
    (r"smollm[23]-.*(instruct|b$)", "<|im_start|>assistant\n"),
    (r"(meta-)?llama-?3.*instruct", "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    (r"gemma-[23]-.*it", "<start_of_turn>model\n"),
    (r"(mistral|mixtral|ministral)-.*instruct", "[/INST]"),
    (r"llama-?2-.*chat", "[/INST]"),
    (r"phi-?3", "<|assistant|>\n"),
    (r"phi-?4(?!-(mini|multimodal))", "<|im_start|>assistant<|im_sep|>"),
)
"""What the published chat template of a model writes before an answer, by the model's name as
`normalized_model_name` writes it
"""
MARKS = (
    # In the order of OPENINGS; a marker holds one of them at most, for PURE takes one.
    "<|im_start|>",
    "<|start_header_id|>",
    "<start_of_turn>",
    "[/INST]",
    "<|assistant|>",
)
PURE = re.compile(
    r"\s*(<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|\[/INST\]|<\|assistant\|>)"
    r"\s*(assistant|model)?\s*(<\|end_header_id\|>)?\s*"
)
"""A marker and nothing else: a text that continues is a prompt of the script's own"""
CHATML = "<|im_start|>assistant\n"
LLAMA_3 = "<|start_header_id|>assistant<|end_header_id|>\n\n"
UNSLOTH_OPENINGS = {
    **dict.fromkeys(("chatml", "qwen-2.5", "qwen-3", "qwen3-instruct"), CHATML),
    **dict.fromkeys(("llama-3", "llama-3.1", "llama-3.2", "llama-3.3"), LLAMA_3),
    **dict.fromkeys(("gemma", "gemma-3", "gemma3"), "<start_of_turn>model\n"),
    "phi-3": "<|assistant|>\n",
}
"""Unsloth's name of a template -> what it writes before an answer (`unsloth/chat_templates.py`)"""


PURE_PROMPT = re.compile(
    r"\s*(?P<mark><\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|\[INST\]|<\|(?=[a-z]+\|>))"
    r"\s*(?P<role>[a-z]+)?\s*(?:<\|end_header_id\|>|<\|im_sep\|>|\|>)?\s*"
)
"""A marker of prompts and nothing else"""
FIXED_ROLES = ("<start_of_turn>", "[INST]", "<|user|>")
"""Openings of prompts in templates that write no other role there, whatever the rows call it"""
ROLES_MADE_ALIKE = ("*standardize_sharegpt", "*standardize_data_formats", "*to_sharegpt")
"""Unsloth's functions after which all questions have the role `user`"""


def _response_markers(module: Module) -> Iterator[ResponseMarker]:
    """The markers of published templates that a script which sets labels encodes or searches for."""
    return (one for one in markers_searched_to_set_labels(module) if PURE.fullmatch(one.text))


class ResponseMarkerOfAnotherFamily(SourceRule):
    code = "SRC090"
    fault = Fault.ANSWER_MARKER_NOT_FOUND
    severity = "error"
    looks_at = CodePlaces(
        "markers by which a script finds the answers",
        lambda module: chain(_response_markers(module), _library_calls_and_prompt_markers(module)),
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        openings = _answer_openings_of_rows(module)
        for marker in _response_markers(module) if openings else ():
            mark = next(mark for mark in MARKS if mark in marker.text)
            may_be_written = any(
                opening is None or _may_row_hold_marker(marker.text, mark, opening)
                for opening in openings.values()
            )
            if may_be_written or _writes_mark_in_own_text(module, mark):
                continue
            name, opening = next(iter(openings.items()))
            is_of_other_family = mark not in (opening or "")
            difference = (
                "of another model family than" if is_of_other_family else "not a role's header in"
            )
            yield self.finding(
                f"the marker {marker.text!r} is {difference} {name}: no row contains it, so no answer is found",
                f"set the marker to what this model's template writes before an answer: {opening!r}",
                evidence=[
                    "if a row without the marker is masked, no label is left: the loss is 0.0 or NaN"
                ],
                cases=[case_of_node(module, marker.place)],
            )
            return
        yield from self._findings_on_prompt_markers(openings)

    def _findings_on_prompt_markers(self, openings: dict[str, str | None]) -> Iterator[Finding]:
        """Findings on markers of prompts that no prompt has, so that nothing ends an answer."""
        module = self.subject
        for call, argument in _library_calls_and_prompt_markers(module) if openings else ():
            marker = str(module.flow.value(argument))
            if any(
                opening is None or _may_row_hold_prompt_marker(module, marker, opening)
                for opening in openings.values()
            ):
                continue
            name, opening = next(iter(openings.items()))
            question = _question_opening_by_answer_opening(opening or "")
            is_unsloth = call.named(*UNSLOTH_RESPONSE_MASKING)
            yield self.finding(
                f"the marker of prompts {marker!r} is in no prompt of {name}: nothing ends an answer, and"
                + (
                    " everything after the first answer is trained on, later questions too"
                    if is_unsloth
                    else " the collator, which needs both markers, gives no row a label"
                ),
                f"set it to what this template writes before a question: {question!r}",
                cases=[case_of_node(module, argument)],
            )


def _library_calls_and_prompt_markers(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """The markers of prompts that libraries are given to find where an answer ends."""
    for call in module.all_calls:
        for argument in _prompt_markers_of_call(module, call):
            marker = module.flow.value(argument)
            if isinstance(marker, str) and PURE_PROMPT.fullmatch(marker):
                yield call, argument


def _question_opening_by_answer_opening(opening: str) -> str:
    """What a template writes before a question, by what it writes before an answer."""
    return re.sub("assistant|model", "user", opening.replace("[/INST]", "[INST]"))


def _may_row_hold_prompt_marker(module: Module, marker: str, opening: str) -> bool:
    """May a question in a row be opened by this marker?"""
    question = _question_opening_by_answer_opening(opening)
    plain = marker.strip()
    if question.startswith(plain) or plain.startswith(question.strip()):
        return True
    match = PURE_PROMPT.fullmatch(marker)
    expected = PURE_PROMPT.fullmatch(question)
    if match is None or expected is None or _writes_mark_in_own_text(module, match["mark"]):
        return True
    if match["mark"] != expected["mark"] or question.startswith(FIXED_ROLES):
        return False
    # Templates of this kind write the role as the row names it.
    return match["role"] in (None, "user") or not _questions_are_of_users(module, match["role"])


def _questions_are_of_users(module: Module, other_role: str) -> bool:
    """Does the script give all questions the role `user`, and never this other role?"""
    if any(call.keywords.get("mapping") for call in module.calls(UNSLOTH_TEMPLATE_CALL)):
        return False
    if any(any(part.calls(*ROLES_MADE_ALIKE)) for part in module.self_and_files_run_together):
        return True
    roles = _roles_named_in_dictionaries(module)
    return "user" in roles and other_role not in roles


def _roles_named_in_dictionaries(module: Module) -> set[object]:
    """The roles that dictionaries of a script and of its linked files name."""
    return {
        value.value
        for part in module.self_and_files_run_together
        for node in part.nodes(ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "role"
        if isinstance(value, ast.Constant)
    }


def _answer_opening_of_model(name: str) -> str | None:
    """The text that the template of a model writes before an answer; None where its name does not
    say it.
    """
    plain = normalized_model_name(name)
    return next((opening for known, opening in OPENINGS if re.match(known, plain)), None)


def _may_row_hold_marker(marker: str, mark: str, opening: str) -> bool:
    """May a row with this opening of answers hold the marker: its mark, and its role (`model` of Gemma), if any?"""
    role = re.search(r"assistant|model", marker)
    if mark not in opening or role is None:
        return mark in opening
    # What stands behind the role counts too: Phi-4 writes a mark of its own where others write a line end.
    behind, expected = marker.partition(role[0])[2], opening.partition(role[0])[2]
    is_same = expected.startswith(behind) or behind.startswith(expected)
    return role[0] in opening and is_same


def _writes_mark_in_own_text(module: Module, mark: str) -> bool:
    """Does the script write the mark in a text of its own, beside those that it only searches for?

    `instruction_part` of Unsloth is searched for too.
    """
    searched = [
        part
        for call in module.all_calls
        for part in (*texts_searched_by_call(module, call), *_prompt_markers_of_call(module, call))
    ]
    given = {origin.node for part in searched for origin in module.flow.origins(part)}
    return any(
        isinstance(node.value, str) and mark in node.value and node not in given
        for node in module.nodes(ast.Constant)
    )


def _prompt_markers_of_call(module: Module, call: Call) -> list[ast.expr]:
    """The markers of prompts that a call of a library searches for."""
    prompt = None
    if call.named(*UNSLOTH_RESPONSE_MASKING):
        prompt = call.argument(1, "instruction_part")
    elif call.named(TRL_COMPLETION_COLLATOR):
        prompt = call.keywords.get("instruction_template")
    return [prompt] if prompt is not None else []


def _answer_openings_of_rows(module: Module) -> dict[str, str | None]:
    """What may render the rows -> the text that it writes before an answer; empty where the script
    has its own template.

    Unsloth's `get_chat_template` puts a template in the place of the model's.
    """
    renders = any(
        part.mentions("apply_chat_template") for part in module.self_and_files_run_together
    )
    if assigns_chat_template(module) or not renders:
        return {}
    replaced = list(module.calls(UNSLOTH_TEMPLATE_CALL))
    if not replaced:
        return {name: _answer_opening_of_model(name) for name in likely_model_names(module, None)}
    names = [str(module.flow.value(call.argument(1, "chat_template"))) for call in replaced]
    return {f"the template {name}": UNSLOTH_OPENINGS.get(name) for name in names}
