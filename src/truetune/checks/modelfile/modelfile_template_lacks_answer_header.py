"""The TEMPLATE of a Modelfile ends before the answer header, so the model writes it itself, or asks on.

## What it does
Looks at a TEMPLATE that opens the user's turn with a header (ChatML, Llama 3 and 4, Gemma, Phi, GLM, Granite, DeepSeek,
gpt-oss, Alpaca, Vicuna; `[INST]` of Mistral). It fires if no header is opened after the last question: after `.Prompt`
and before `.Response`, or, in a loop over `.Messages`, anywhere except before a message that already exists. For
`[INST]` it is the closing `[/INST]`.

## Why it is bad
In training, the answer began after that header. Without it, the model writes the most likely next text: the header
itself (the answer starts with the word `assistant`), or another user turn, so it asks a question. It looks fine in a
notebook, where `apply_chat_template(..., add_generation_prompt=True)` writes the header.

## Example
```text
FROM ./model.gguf
TEMPLATE <|im_start|>user {{ .Prompt }}<|im_end|>
PARAMETER stop <|im_end|>
PARAMETER num_ctx 8192
```

## Use instead
```text
FROM ./model.gguf
TEMPLATE <|im_start|>user {{ .Prompt }}<|im_end|><|im_start|>assistant
PARAMETER stop <|im_end|>
PARAMETER num_ctx 8192
```

## Fix safety
Write the header exactly as the tokenizer's template does, with its line breaks: `truetune serve-check` compares the
prompts.

## References
- Ollama documentation, "Template" and "Modelfile Reference"
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ModelfileRule

ACTION = re.compile(r"\{\{-?([^{}]*)\}\}")
"""An action of Go's templates; one that holds braces is not read, and the template counts as unknown"""
QUESTION = re.compile(r"\.Prompt\b")
ANSWER = re.compile(r"\.Response\b")
MESSAGES = re.compile(r"\brange\b.*\.Messages\b")
PAST_MESSAGE = re.compile(r"\.(?:Content|ToolCalls|Thinking|Function|System|Tools)\b")
"""What is written behind the header of a message that already exists"""
CONTROL = re.compile(r"\s*(if|else|end|range|with|break|continue|/\*)(?:\b|$|\*)")
"""Actions that write nothing themselves"""
NAMED_PART = re.compile(r"\s*(?:define|template|block)\b")
"""What they write stands elsewhere"""


@dataclass(frozen=True, slots=True)
class _TurnFormat:
    """How a family of templates opens the user's turn, and the turn of the answer."""

    user: re.Pattern[str]
    """What stands in front of a question, at its end"""
    opening: re.Pattern[str]
    """What opens any turn: a template may end with that of a tool, or of the user whom the model plays"""
    answer: str
    """What is to be written, as words for the user"""


def _make_turn_format(user: str, opening: str, answer: str) -> _TurnFormat:
    """The record of a family, from the texts of its patterns."""
    return _TurnFormat(re.compile(user), re.compile(opening), answer)


FORMATS = (
    _make_turn_format(r"<\|im_start\|>user\b", r"<\|im_start\|>", "<|im_start|>assistant"),
    _make_turn_format(
        r"<\|start_header_id\|>user\b",
        r"<\|start_header_id\|>",
        "<|start_header_id|>assistant<|end_header_id|>",
    ),
    _make_turn_format(
        r"<\|header_start\|>user\b",
        r"<\|header_start\|>",
        "<|header_start|>assistant<|header_end|>",
    ),
    _make_turn_format(r"<start_of_turn>user\b", r"<start_of_turn>", "<start_of_turn>model"),
    _make_turn_format(r"<\|turn>user\b", r"<\|turn>", "<|turn>model"),
    _make_turn_format(
        r"<\|start_of_role\|>user\b",
        r"<\|start_of_role\|>",
        "<|start_of_role|>assistant<|end_of_role|>",
    ),
    _make_turn_format(r"<\|start\|>user\b", r"<\|start\|>", "<|start|>assistant"),
    _make_turn_format(
        r"<\|USER_TOKEN\|>", r"<\|START_OF_TURN_TOKEN\|>|<\|CHATBOT_TOKEN\|>", "<|CHATBOT_TOKEN|>"
    ),
    _make_turn_format(
        "<\uff5cUser\uff5c>", "<\uff5c(?:User|Assistant)\uff5c>", "<\uff5cAssistant\uff5c>"
    ),
    _make_turn_format(
        r"<\|user\|>", r"<\|(?:user|assistant|system|observation)\|>", "<|assistant|>"
    ),
    _make_turn_format(r"\[INST\]", r"\[/INST\]", "[/INST]"),
    _make_turn_format(
        r"###\s?(?:Instruction|Input|Question|User|Human)\b", r"###\s?\w", "### Response:"
    ),
    _make_turn_format(r"\bUSER:", r"\b[A-Z]+:", "ASSISTANT:"),
)
"""Order: a mark that is also a part of another's stands behind it"""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of a template: text as it stands, or an action."""

    value: str
    is_action: bool

    @property
    def is_action_that_writes(self) -> bool:
        """Is a piece an action that puts something into the prompt?"""
        return self.is_action and CONTROL.match(self.value) is None


def _pieces_of_template(template: str) -> tuple[_Piece, ...]:
    """Texts and actions in their order; empty where an action can't be read, or a part stands elsewhere."""
    pieces, start = [], 0
    for match in ACTION.finditer(template):
        pieces.append(_Piece(template[start : match.start()], is_action=False))
        pieces.append(_Piece(match[1], is_action=True))
        start = match.end()
    pieces.append(_Piece(template[start:], is_action=False))
    for piece in pieces:
        unread = not piece.is_action and "{{" in piece.value
        if unread or (piece.is_action and NAMED_PART.match(piece.value)):
            return ()
    return tuple(pieces)


def _text_before(pieces: tuple[_Piece, ...], place: int) -> str:
    """The text in front of a place, back to the last action that writes."""
    text = ""
    for piece in reversed(pieces[:place]):
        if piece.is_action_that_writes:
            break
        if not piece.is_action:
            text = piece.value + text
    return text


def _pieces_between_question_and_answer(
    pieces: tuple[_Piece, ...], place: int
) -> tuple[_Piece, ...]:
    """What stands behind a question and in front of the answer, which Ollama writes at the end where none is named."""
    behind = pieces[place + 1 :]
    for i in range(len(behind)):
        if behind[i].is_action_that_writes and ANSWER.search(behind[i].value):
            return behind[:i]
    return behind


def _places_of_prompt_actions(pieces: tuple[_Piece, ...]) -> list[int]:
    """Where `.Prompt` is written."""
    return [
        place
        for place, piece in enumerate(pieces)
        if piece.is_action_that_writes and QUESTION.search(piece.value) is not None
    ]


def _format_lacking_header_after_prompt(pieces: tuple[_Piece, ...]) -> _TurnFormat | None:
    """The format whose header lacks behind the last `.Prompt`; None where none does, or it is not known."""
    for place in reversed(_places_of_prompt_actions(pieces)):
        before = _text_before(pieces, place)
        family = next((family for family in FORMATS if _opens_user_turn_last(family, before)), None)
        if family is None:
            continue
        behind = _pieces_between_question_and_answer(pieces, place)
        # A variable or a constant may be the header.
        if any(piece.is_action_that_writes for piece in behind):
            return None
        text = "".join(piece.value for piece in behind if not piece.is_action)
        return None if family.opening.search(text) else family
    return None


def _opens_user_turn_last(family: _TurnFormat, before: str) -> bool:
    """Is the last turn that is opened in front of a text the user's? A prompt may also begin the answer."""
    users = [match.end() for match in family.user.finditer(before)]
    openings = [match.start() for match in family.opening.finditer(before)]
    return bool(users) and users[-1] > max(openings, default=0)


def _format_lacking_header_after_messages(pieces: tuple[_Piece, ...]) -> _TurnFormat | None:
    """The format that opens turns for messages alone; None where it opens one for the answer, or is not known."""
    family = _format_of_messages(pieces)
    if family is None:
        return None
    for i in range(len(pieces)):
        opens = not pieces[i].is_action and family.opening.search(pieces[i].value)
        if opens and not _continues_with_message(pieces[i + 1 :]):
            return None
    return family


def _format_of_messages(pieces: tuple[_Piece, ...]) -> _TurnFormat | None:
    """The format of a template over messages: it names the user, or writes the role of each; None where unknown."""
    texts = "".join(piece.value for piece in pieces if not piece.is_action)
    named = next((family for family in FORMATS if family.user.search(texts)), None)
    return named or next(
        (family for family in FORMATS if _is_role_written_behind_opening(family, pieces)), None
    )


def _is_role_written_behind_opening(family: _TurnFormat, pieces: tuple[_Piece, ...]) -> bool:
    """Is the role of a message written behind the opening: `<|im_start|>{{ .Role }}`?"""
    return any(
        not pieces[i].is_action
        and re.search(rf"(?:{family.opening.pattern})\Z", pieces[i].value) is not None
        and ".Role" in pieces[i + 1].value
        for i in range(len(pieces) - 1)
    )


def _continues_with_message(behind: tuple[_Piece, ...]) -> bool:
    """Is what is written next behind a header a message that already exists, or the system prompt?"""
    for value in _writing_actions_after(behind):
        if PAST_MESSAGE.search(value):
            return True
        if ".Role" not in value:
            return False
    return False


def _writing_actions_after(behind: tuple[_Piece, ...]) -> Iterator[str]:
    """The actions that write, in the order in which they run behind a place; a range is left at its end."""
    depth, is_other_branch = 0, False
    for piece in behind:
        control = CONTROL.match(piece.value) if piece.is_action else None
        word = control[1] if control is not None else ""
        if word in ("if", "range", "with"):
            depth += 1
        elif word == "end" and depth > 0:
            depth -= 1
        elif word == "end":
            is_other_branch = False
        elif word == "else" and depth == 0:
            # The branch that holds the place has run: this one doesn't.
            is_other_branch = True
        elif piece.is_action_that_writes and not is_other_branch:
            yield piece.value


class ModelfileTemplateLacksAnswerHeader(ModelfileRule):
    code = "MFL009"
    fault = Fault.ANSWER_HEADER_MISSING_FROM_PROMPT
    symptoms = ("garbage-output", "never-stops", "good-here-bad-there")
    severity = "error"

    def unmet(self) -> Unmet | None:
        """Unmet without a TEMPLATE."""
        if self.subject.last("template") is not None:
            return None
        return Unmet("it is about TEMPLATE, and there is none: that of FROM holds")

    def measurement_if_clean(self) -> str:
        """That TEMPLATE opens a turn after the question, or is of no known family."""
        return "TEMPLATE opens a turn after the question, or is of no known family"

    def findings(self) -> Iterator[Finding]:
        template = self.subject.last("template")
        if template is None:
            return
        pieces = _pieces_of_template(template.value)
        is_over_messages = any(piece.is_action and MESSAGES.search(piece.value) for piece in pieces)
        lacks = (
            _format_lacking_header_after_messages
            if is_over_messages
            else _format_lacking_header_after_prompt
        )
        family = lacks(pieces)
        if family is None:
            return
        yield self.finding(
            f"TEMPLATE ends after the question without {family.answer}, after which the model was trained to answer:"
            " it now writes the header itself, or another question",
            f"write {family.answer} after the last turn, as the training's chat template does with"
            f" add_generation_prompt=True, and then {{{{ .Response }}}}",
            cases=[self.case_of_instruction(template)],
        )
