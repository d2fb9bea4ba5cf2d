"""The trainer masks by `{% generation %}` tags, but the chat template has none.

## What it does
With `mask_by: generation-tags` (TRL's `assistant_only_loss=True`), it looks for `{% generation %}` in the chat
template.

## Why it is bad
`return_assistant_tokens_mask` then returns only zeros: the run trains on nothing, and its loss is 0 or NaN. Some
trainers fall back to a mask of ones, and the model learns to write the user's turns.

## Example
```yaml
spec: {mask_by: generation-tags}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
The tag adds nothing to the text. Put it around what the model must generate: from the end of the generation prompt
through the stop token.

## References
- huggingface/trl#4201, QwenLM/Qwen3#1522, marin-community/marin#7237, NVIDIA-NeMo/Megatron-Bridge#3359
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_data_rules_cannot_judge import NO_TEMPLATE, NOT_BY_TAGS
from truetune.checks.rule import DataRule


class GenerationTagMissing(DataRule):
    code = "TPL002"
    fault = Fault.GENERATION_TAGS_MISSING_OR_WRONG
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Unmet where the mask is not taken from generation tags, or there is no template."""
        if self.spec.mask_by != "generation-tags":
            return NOT_BY_TAGS
        return NO_TEMPLATE if self.probes.template is None else None

    def measurement_if_clean(self) -> str:
        """That the chat template has generation tags."""
        return "the chat template has {% generation %} tags"

    def findings(self) -> Iterator[Finding]:
        template = self.probes.template
        if (
            self.spec.mask_by == "generation-tags"
            and template is not None
            and not template.has_generation_tags
        ):
            yield self.finding(
                "the mask should come from {% generation %} tags, but the chat template has none: no token gets a"
                " label",
                "in the chat template, put {% generation %}...{% endgeneration %} around each answer and its stop"
                " token; or encode the rows with `truetune encode`, whose labels need no tags",
                evidence=[
                    "return_assistant_tokens_mask gives 0 for every token of every row with this"
                    " template"
                ],
            )
