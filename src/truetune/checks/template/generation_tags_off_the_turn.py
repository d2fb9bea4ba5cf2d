"""The template's generation tags do not hold what inference must produce.

## What it does
Where the mask comes from `{% generation %}` tags, it renders a probe chat with marks inside the tags, and compares what
they hold with the inference contract: from the end of the generation prompt through the stop token. A think block that the generation prompt supplies is left to `empty-think-block-supervised`.

## Why it is bad
Tags that close before the stop token never teach the model to stop. Tags that open before the role header teach it to
write `assistant` again at the start of each answer. The loss looks healthy in both.

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
Safe: the tags write nothing; moving them changes the mask alone.

## References
- huggingface/trl#5988, NVIDIA-NeMo/Automodel#3352, QwenLM/Qwen#446, axolotl-ai-cloud/axolotl#3754
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.needs import NO_TEMPLATE, NOT_BY_TAGS, PROBES_FAIL
from truetune.checks.rule import DataRule
from truetune.checks.token_cases import at_stop, at_turn, first_answer
from truetune.encoding.batch import Batch
from truetune.errors import TemplateError
from truetune.render.probes import ANSWER, QUESTION, chat
from truetune.render.template import Template

OPEN, CLOSE = "\ue000", "\ue001"
"""Private characters that no template writes"""
OPENS = re.compile(r"\{%-?\s*generation\s*(-?)%\}\n?")
CLOSES = re.compile(r"\{%(-?)\s*endgeneration\b")


class GenerationTagsOffTheTurn(DataRule):
    code = "TPL013"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_without_rows = True
    answer: Case | None = None
    stop: Case | None = None
    compared = False
    """Could the tags be compared with what inference must produce?"""

    def batch(self, batch: Batch) -> None:
        if self.answer is None and (found := first_answer(batch)) is not None:
            self.answer = at_turn(batch, *found, "the answer begins here")
            self.stop = at_stop(batch, *found, "the turn ends here")

    def unmet(self) -> Unmet | None:
        if self.spec.mask_by != "generation-tags":
            return NOT_BY_TAGS
        if self.probes.template is None:
            return NO_TEMPLATE
        if not self.probes.template.has_generation_tags:
            return Unmet(
                "the chat template has no {% generation %} tags", "see generation-tag-missing"
            )
        return None if self.compared else PROBES_FAIL

    def figure(self) -> str:
        return (
            "the {% generation %} tags of a probe hold its answer and its stop token, and no more"
        )

    def findings(self) -> Iterator[Finding]:
        template = self.probes.template
        if (
            self.spec.mask_by != "generation-tags"
            or template is None
            or not template.has_generation_tags
        ):
            return
        try:
            (rendering,) = self.probes.renderings(
                chat(QUESTION, ANSWER), learn=type(self.spec.learn)(), history="single"
            )
        except (TemplateError, ValueError):
            return
        found = _tagged(self, template)
        if (
            found is None
            or found[0] != rendering.text
            or not rendering.turns
            or rendering.turns[0].stop_start < 0
        ):
            return
        self.compared = True
        text, start, end = found
        turn = rendering.turns[0]
        if end < turn.end and (missed := text[max(end, turn.start) : turn.end].strip()):
            yield self.finding(
                "the generation tags close before the turn ends: its stop token is not supervised",
                "move {% endgeneration %} behind the stop token",
                evidence=[f"not in the tags: {missed!r}"],
                cases=filter(None, [self.stop]),
            )
        header = re.sub(r"</?think>", "", text[start : turn.start]).strip()
        if start < turn.start and header:
            yield self.finding(
                "the generation tags open before the answer: what the generation prompt supplies is"
                " supervised",
                "move {% generation %} behind the role header",
                severity="warning",
                evidence=[f"in the tags: {header!r}"],
                cases=filter(None, [self.answer]),
            )


def _tagged(rule: DataRule, template: Template) -> tuple[str, int, int] | None:
    """The probe's text, and where the tags of its answer begin and end; None where there are none."""
    source = OPENS.sub(lambda m: f"{m[0]}{{{{ '{OPEN}' {m[1]}}}}}", template.source)
    source = CLOSES.sub(lambda m: f"{{{{{m[1]} '{CLOSE}' }}}}{m[0]}", source)
    marked = replace(rule.probes, template=Template(source, template.special)).text(
        chat(QUESTION, ANSWER)
    )
    if marked is None or (marked.count(OPEN), marked.count(CLOSE)) != (1, 1):
        return None
    start, end = marked.index(OPEN), marked.index(CLOSE) - 1
    return marked.replace(OPEN, "").replace(CLOSE, ""), start, end
