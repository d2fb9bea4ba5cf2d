"""How the chat templates of known families write a turn.

The trade-off: what a template adds of its own (a date, a default system prompt) is left out. The forms serve to tell
prompts from answers where the tokenizer is not here, and nothing is counted of what stands around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    normalized_model_name,
)


class Turn(NamedTuple):
    """The content of a turn in a text."""

    start: int
    end: int
    is_answer: bool


@dataclass(frozen=True, slots=True)
class TurnForm:
    """What stands before and behind the content of a turn."""

    begin: str
    """With `{role}`"""
    end: str
    answer_role: str = "assistant"

    @property
    def mark_pattern(self) -> str:
        """A regular expression, in a group, that matches the control tokens of this form."""
        tokens = re.findall(r"<[^<>{}]+>", self.begin + self.end)
        return "(" + "|".join(re.escape(token) for token in tokens) + ")"

    def render(self, messages: list[Any], adds_generation_prompt: bool) -> str | None:
        """A chat as text; None where it is no list of messages."""
        if not all(isinstance(one, dict) for one in messages):
            return None
        turns = [
            f"{self._text_before_turn(one.get('role'))}{one.get('content')}{self.end}"
            for one in messages
        ]
        return "".join(turns) + (
            self._text_before_turn("assistant") if adds_generation_prompt else ""
        )

    def _text_before_turn(self, role: Any) -> str:
        """The text before a turn of this role."""
        return self.begin.format(role=self.answer_role if role == "assistant" else role)

    def turns_in(self, text: str) -> Iterator[Turn]:
        """The turns of a rendered chat; the last one may be cut."""
        before, after = map(re.escape, self.begin.split("{role}"))
        pattern = f"{before}(\\w+){after}(.*?)(?:{re.escape(self.end.strip())}|$)"
        for match in re.finditer(pattern, text, re.DOTALL):
            yield Turn(match.start(2), match.end(2), match[1] == self.answer_role)


CHATML = TurnForm("<|im_start|>{role}\n", "<|im_end|>\n")
FORMS = (
    (r"(qwen|qwq)", CHATML),
    (r"smollm[23]-.*(instruct|b$)", CHATML),
    (
        r"(meta-)?llama-?3.*instruct",
        TurnForm("<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>"),
    ),
    (
        r"phi-?4(?!-(mini|multimodal))",
        TurnForm("<|im_start|>{role}<|im_sep|>", "<|im_end|>"),
    ),
    (r"gemma-[23]-.*it", TurnForm("<start_of_turn>{role}\n", "<end_of_turn>\n", "model")),
)
"""The name of a model, as `normalized_model_name` writes it -> how its published chat template writes a turn"""
PLAIN_TURNS = TurnForm("<turn>{role}\n", "</turn>\n")
"""For models whose form is not known"""


def turn_form_of_model(name: str) -> TurnForm | None:
    """The form in which the template of a model writes turns; None where its name does not say it."""
    plain = normalized_model_name(name)
    return next((form for known, form in FORMS if re.match(known, plain)), None)
