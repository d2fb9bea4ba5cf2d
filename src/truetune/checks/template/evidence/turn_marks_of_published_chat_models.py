"""How published chat models write their turns: headers, turn ends, and the white space around them.

Facts of the published templates, each as a plain text around a question and an answer. A family is known by its
control tokens, and not by a model's name. Families whose published versions disagree (Llama 2, Mistral before v3, GLM)
are left out."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class PublishedMarks(NamedTuple):
    """The turns of a family of chat models."""

    models: str
    """Published models that have them, for a message"""
    tokens: tuple[str, ...]
    """Control tokens that all of them have"""
    question_header: str
    turn_end: str
    """From the end of any turn to the next header"""
    answer_header: str
    foreign: tuple[str, ...] = ()
    """Control tokens of another family that shares `tokens`"""
    answer_end: str = ""
    """From the end of an answer to the next header, where it is another one than of a question"""
    are_stripped: bool = False
    """Do the published tokens take the white space beside them (`rstrip`)?"""

    @property
    def text_between_question_and_answer(self) -> str:
        """What is between a question and its answer."""
        return self.turn_end + self.answer_header

    @property
    def end_token(self) -> str:
        """The token that ends an answer."""
        end = self.answer_end or self.turn_end
        return next(token for token in self.tokens if end.startswith(token))

    @property
    def text_between_answer_and_question(self) -> str:
        """What is between an answer and the next question."""
        return (self.answer_end or self.turn_end) + self.question_header


FAMILIES = (
    PublishedMarks(
        "Qwen, SmolLM, Yi and other ChatML models",
        ("<|im_start|>", "<|im_end|>"),
        "<|im_start|>user\n",
        "<|im_end|>\n",
        "<|im_start|>assistant\n",
        foreign=("<|im_sep|>",),
    ),
    PublishedMarks(
        "Phi-4",
        ("<|im_start|>", "<|im_sep|>", "<|im_end|>"),
        "<|im_start|>user<|im_sep|>",
        "<|im_end|>",
        "<|im_start|>assistant<|im_sep|>",
    ),
    PublishedMarks(
        "Llama 3",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|start_header_id|>user<|end_header_id|>\n\n",
        "<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    PublishedMarks(
        "Gemma 1 to 3",
        ("<start_of_turn>", "<end_of_turn>"),
        "<start_of_turn>user\n",
        "<end_of_turn>\n",
        "<start_of_turn>model\n",
    ),
    PublishedMarks(
        "Gemma 4",
        ("<|turn>", "<turn|>"),
        "<|turn>user\n",
        "<turn|>\n",
        "<|turn>model\n",
    ),
    PublishedMarks(
        "Phi-3",
        # Phi-4-mini and Apriel have the first three as well, and write no line end or one more.
        ("<|user|>", "<|assistant|>", "<|end|>", "<|placeholder1|>"),
        "<|user|>\n",
        "<|end|>\n",
        "<|assistant|>\n",
        are_stripped=True,
    ),
    PublishedMarks(
        "DeepSeek V3 and R1",
        ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        "<｜User｜>",
        "",
        "<｜Assistant｜>",
        answer_end="<｜end▁of▁sentence｜>",
    ),
    PublishedMarks(
        "Granite 3",
        ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"),
        "<|start_of_role|>user<|end_of_role|>",
        "<|end_of_text|>\n",
        "<|start_of_role|>assistant<|end_of_role|>",
    ),
    PublishedMarks(
        "Command R",
        ("<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"),
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>",
        "<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        # Command A, R7B and Tiny Aya wrap each answer in this and its end.
        foreign=("<|START_RESPONSE|>",),
    ),
)


def find_published_marks(control_tokens: Collection[str]) -> PublishedMarks | None:
    """The family whose control tokens a tokenizer has; None of none, and of several at once."""
    known = [
        marks
        for marks in FAMILIES
        if all(token in control_tokens for token in marks.tokens)
        and not any(token in control_tokens for token in marks.foreign)
    ]
    return known[0] if len(known) == 1 else None
