"""The template's generation tags do not match what the model must generate.

## What it does
If the mask comes from `{% generation %}` tags, renders a test chat with markers inside the tags, and compares their
content with what the model must generate: from the end of the generation prompt through the stop token. Tags that close
too early are an error (a warning if it is not known that the trainer uses them); tags that open too early are a
warning. An empty think block from the generation prompt is reported by `empty-think-block-supervised`.

## Why it is bad
Tags that close before the stop token never teach the model to stop. Tags that open before the role header teach it to
write `assistant` again at the start of each answer. The loss looks healthy in both cases.

## Example
```yaml
spec: {mask_by: generation-tags}
files:
  chat_template.jinja: "{% for m in messages %}<|im_start|>{{ m.role }}\\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>\\n{% else %}{{ m.content }}<|im_end|>\\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}"
```

## Use instead
```yaml
spec: {mask_by: generation-tags}
files:
  chat_template.jinja: "{% for m in messages %}<|im_start|>{{ m.role }}\\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}\\n{% else %}{{ m.content }}<|im_end|>\\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}"
```

## Fix safety
Safe: the tags write nothing; moving them changes only the mask.

## References
- huggingface/trl#5988, NVIDIA-NeMo/Automodel#3352, QwenLM/Qwen#446, axolotl-ai-cloud/axolotl#3754
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_stop, case_at_turn, first_answer
from truetune.checks.reasons_data_rules_cannot_judge import NO_TEMPLATE, NOT_BY_TAGS, PROBES_FAIL
from truetune.checks.rule import DataRule
from truetune.checks.template.evidence.mark_text_inside_generation_tags import (
    CLOSE_MARK,
    OPEN_MARK,
    insert_marks_at_generation_tags,
)
from truetune.encoding.batch import Batch
from truetune.errors import TemplateError
from truetune.render.rendering import Turn
from truetune.render.template import Template
from truetune.render.template_probes import ANSWER, QUESTION, alternating_chat
from truetune.trainers import UNKNOWN


class TaggedAnswer(NamedTuple):
    """The answer of a probe chat: what the tags hold, and what inference must produce."""

    text: str
    start: int
    """First character inside of the tags"""
    end: int
    """One past the last character inside of the tags"""
    turn: Turn


class GenerationTagsOffTheTurn(DataRule):
    code = "TPL013"
    fault = Fault.GENERATION_TAGS_MISSING_OR_WRONG
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_without_rows = True
    answer: Case | None = None
    stop: Case | None = None
    compared = False
    """Could the tags be compared with what inference must produce?"""

    def add_batch(self, batch: Batch) -> None:
        """Keep where the first answer begins and where its turn ends, as cases."""
        if self.answer is not None:
            return
        answer = first_answer(batch)
        if answer is not None:
            self.answer = case_at_turn(batch, *answer, "the answer begins here")
            self.stop = case_at_stop(batch, *answer, "the turn ends here")

    def unmet(self) -> Unmet | None:
        """Unmet where the mask is not taken from generation tags, the template is missing or has
        none, or the probes fail.
        """
        if self._is_mask_known_not_from_tags():
            return NOT_BY_TAGS
        if self.probes.template is None:
            return NO_TEMPLATE
        if not self.probes.template.has_generation_tags:
            return Unmet(
                "the chat template has no {% generation %} tags", "see generation-tag-missing"
            )
        return None if self.compared else PROBES_FAIL

    def _is_mask_known_not_from_tags(self) -> bool:
        """Is it known that the mask is not taken from the tags?

        Where no trainer is known, tags of a template are there for one that takes them.
        """
        if self.spec.mask_by == "generation-tags":
            return False
        template = self.probes.template
        has_tags = template is not None and template.has_generation_tags
        return not has_tags or self.setup.trainer is not UNKNOWN

    def measurement_if_clean(self) -> str:
        """That the generation tags of a probe hold its answer and its stop token, and no more."""
        return "the {% generation %} tags of a test chat contain its answer and its stop token, and nothing else"

    def findings(self) -> Iterator[Finding]:
        tagged = self._probe_tags()
        if tagged is None:
            return
        self.compared = True
        missed = tagged.text[max(tagged.end, tagged.turn.start) : tagged.turn.end].strip()
        if missed:
            is_masked_by_tags = self.spec.mask_by == "generation-tags"
            yield self.finding(
                "the generation tags close before the turn ends: "
                + (
                    "its stop token is not in the loss"
                    if is_masked_by_tags
                    else "a trainer that masks by them leaves its stop token out of the loss"
                ),
                "in the chat template, move {% endgeneration %} after the stop token",
                severity=None if is_masked_by_tags else "warning",
                evidence=[f"not in the tags: {missed!r}"],
                cases=filter(None, [self.stop]),
            )
        # An empty think block that the generation prompt supplies is
        # empty-think-block-supervised's.
        header = re.sub(r"</?think>", "", tagged.text[tagged.start : tagged.turn.start]).strip()
        if header:
            yield self.finding(
                "the generation tags open before the answer: a trainer that masks by them puts the header into the"
                " loss, which the prompt already contains",
                "in the chat template, move {% generation %} after the role header",
                severity="warning",
                evidence=[f"in the tags: {header!r}"],
                cases=filter(None, [self.answer]),
            )

    def _probe_tags(self) -> TaggedAnswer | None:
        """A probe chat's answer with what its tags hold; None where the two can't be compared."""
        template = self.probes.template
        if self._is_mask_known_not_from_tags() or template is None:
            return None
        if not template.has_generation_tags:
            return None
        # With the default of `learn`: where the contract itself is narrowed, the tags still hold
        # whole turns.
        try:
            (rendering,) = self.probes.renderings(
                alternating_chat(QUESTION, ANSWER), learn=type(self.spec.learn)(), history="single"
            )
        except (TemplateError, ValueError):
            return None
        span = _find_text_and_range_of_tagged_answer(self, template)
        if span is None or not rendering.turns or rendering.turns[0].stop_start < 0:
            return None
        text, start, end = span
        # The marks changed what the template writes: what they hold would be of another text.
        if text != rendering.text:
            return None
        return TaggedAnswer(text, start, end, rendering.turns[0])


def _find_text_and_range_of_tagged_answer(
    rule: DataRule, template: Template
) -> tuple[str, int, int] | None:
    """(the probe's text, begin, end) of what the generation tags of its answer enclose; None if
    there are none.
    """
    probes = replace(rule.probes, template=insert_marks_at_generation_tags(template))
    marked = probes.text(alternating_chat(QUESTION, ANSWER))
    if marked is None or (marked.count(OPEN_MARK), marked.count(CLOSE_MARK)) != (1, 1):
        return None
    # Without the mark of the opening tag, all behind it moves one character to the left.
    start, end = marked.index(OPEN_MARK), marked.index(CLOSE_MARK) - 1
    return marked.replace(OPEN_MARK, "").replace(CLOSE_MARK, ""), start, end
