"""Prompts end without the header that every training answer begins with.

## What it does
Renders a question as it is served (`add_generation_prompt=True`) and the same question with its answer, as in training.
It fires if the template writes a control token between the two that also opens other turns: the header of the answer,
which the generation prompt should have contained. A label without any mark (`Assistant: `) is a warning: the model
learns to begin each answer with them.

## Why it is bad
The model gets no header and has to write it first. If the loss leaves headers out, it has never learned to: it
continues the user's turn, or answers in another role.

## Example
```yaml
files:
  chat_template.jinja: >-
    {% for m in messages %}<|im_start|>{{ m.role }}
    {{ m.content }}<|im_end|>
    {% endfor %}
```

## Use instead
```yaml
files:
  chat_template.jinja: >-
    {% for m in messages %}<|im_start|>{{ m.role }}
    {{ m.content }}<|im_end|>
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
    {% endif %}
```

## Fix safety
Safe: it changes prompts, but no training text.

## References
- huggingface/transformers documentation, "Chat templates" (`add_generation_prompt`)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_data_rules_cannot_judge import NO_TEMPLATE
from truetune.checks.rule import DataRule
from truetune.render.template_probes import ANSWER, QUESTION, alternating_chat

MARKS = "<[|"


class ServedAndTrained(NamedTuple):
    """A question as it is served, and what the template writes from there to the answer in training."""

    prompt: str
    before_answer: str


class GenerationPromptWithoutHeader(DataRule):
    code = "TPL016"
    fault = Fault.ANSWER_HEADER_MISSING_FROM_PROMPT
    symptoms = ("garbage-output", "never-stops")
    severity = "error"
    judges_without_rows = True

    def unmet(self) -> Unmet | None:
        """Unmet without a template, or where the served prompt is no beginning of the trained text."""
        if self.probes.template is None:
            return NO_TEMPLATE
        if self._served_and_trained_question is None:
            return Unmet(
                "it is about prompts with which training texts begin, and here they do not"
            )
        return None

    def measurement_if_clean(self) -> str:
        """What the template writes between a served prompt and its answer."""
        probe = self._served_and_trained_question
        return f"between a prompt and its answer comes {probe.before_answer if probe else ''!r}"

    def findings(self) -> Iterator[Finding]:
        probe = self._served_and_trained_question
        if probe is None:
            return
        header = self._token_opening_question_and_answer(probe)
        if header is None:
            yield from self._finding_on_words_before_answer(probe)
            return
        yield self.finding(
            f"the serving prompt ends without the answer's header: {probe.before_answer!r} comes before each answer"
            " in training, but add_generation_prompt does not write it",
            "write the header at the end of the chat template: {% if add_generation_prompt %}"
            f"{probe.before_answer.strip()}{{% endif %}}",
            evidence=[f"the prompt ends with {probe.prompt[-40:]!r}"],
        )

    def _finding_on_words_before_answer(self, probe: ServedAndTrained) -> Iterator[Finding]:
        """The finding on plain words that the template writes before each answer in training alone."""
        words = probe.before_answer
        # Marks (<think>, channels) are a form of reasoning, which other rules judge; a recipient has no colon.
        is_label = any(char.isalpha() for char in words) and words.rstrip().endswith(":")
        if not is_label or any(char in words for char in MARKS):
            return
        yield self.finding(
            f"the template writes {words!r} before each answer in training, but add_generation_prompt does not: the"
            " model learns to begin its answers with it, and users see it",
            f"remove {words!r} from the chat template, or write it at the end of the generation prompt as well",
            severity="warning",
            evidence=[f"the prompt ends with {probe.prompt[-40:]!r}"],
        )

    @cached_property
    def _served_and_trained_question(self) -> ServedAndTrained | None:
        """A question as it is served and as it is trained; None where the one is no beginning of the other."""
        served = self.probes.text(alternating_chat(QUESTION), add_generation_prompt=True)
        trained = self.probes.text(alternating_chat(QUESTION, ANSWER))
        if served is None or trained is None or ANSWER not in trained:
            return None
        if not trained.startswith(served):
            return None
        return ServedAndTrained(served, trained[len(served) : trained.index(ANSWER)])

    def _token_opening_question_and_answer(self, probe: ServedAndTrained) -> str | None:
        """The first control token before the answer, where it opens the question's turn too.

        Another first one (a channel, a thought) belongs to what the model writes.
        """
        added = self.tokenizer.backend.get_added_tokens_decoder().values()
        texts = [token.content for token in added if token.content in probe.before_answer]
        first = min(texts, key=probe.before_answer.index, default=None)
        return first if first is not None and first in probe.prompt else None
