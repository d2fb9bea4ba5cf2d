"""The chat template shortens or changes the contents of turns.

## What it does
Renders a chat whose system, user and assistant turns contain long texts with line breaks, capitals, quotes and code,
and looks for each of them, complete, in what the template writes. White space at both ends may be missing. If nothing
of a turn is written (a system turn that the template does not know), `field-reaches-no-token` reports it, on rows that
have one.

## Why it is bad
A template that cuts a content (`content[:500]`, `truncate`), takes a part of it (`split`), or changes it (`lower`,
`replace`, `tojson`) does so in each row and in each request. The model learns from other texts than the rows contain,
and nothing fails.

## Example
```yaml
files:
  chat_template.jinja: >-
    {% for m in messages %}<|im_start|>{{ m.role }}
    {{ m.content[:200] }}<|im_end|>
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
    {% endif %}
```

## Use instead
```yaml
files:
  chat_template.jinja: >-
    {% for m in messages %}<|im_start|>{{ m.role }}
    {{ m.content | trim }}<|im_end|>
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
    {% endif %}
```

## Fix safety
Write contents as they are. A model that was trained with the old template has learned the changed texts: train it
again.

## References
- bigscience-workshop/promptsource#293, chujiezheng/chat_templates#25
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_TEMPLATE
from truetune.checks.rule import DataRule
from truetune.data.conversation import Message

# Long enough for cuts at the usual 100 to 1,000 characters; each turn has marks of its own, so that
# one turn's text is never taken for another's.
FORMS_PER_TURN = 60
FORMS = (
    "The Nordic Pool opens at 9:00 and closes at 18:30.\n\n",
    "def area(radius):\n    return 3.14 * radius ** 2\n\n",
    'She said: "It\'s 5 < 7 & 8 > 6", and left.\n\n',
    "Crème brûlée, ΑΒΓ, 你好.\n\n",
)
ROLES = ("system", "user", "assistant")


class TemplateChangesContents(DataRule):
    code = "TPL015"
    fault = Fault.ROWS_CHANGED_BY_TEMPLATE
    symptoms = ("nothing-is-learned", "garbage-output")
    severity = "error"
    judges_without_rows = True

    def unmet(self) -> Unmet | None:
        """Unmet without a template, or where it renders none of the probes."""
        if self.probes.template is None:
            return NO_TEMPLATE
        if self._render_probe is None:
            return Unmet("it is about chats of user and assistant, and the template renders none")
        return None

    def measurement_if_clean(self) -> Measurement:
        """The number of turns whose content is changed, none."""
        probe = self._render_probe
        turns = len(probe[0]) if probe else 0
        return make_count_measurement("long contents that the template changes", 0, turns)

    def findings(self) -> Iterator[Finding]:
        probe = self._render_probe
        if probe is None:
            return
        messages, text = probe
        changed = [
            one
            for number, one in enumerate(messages)
            if one["content"] not in text and _unique_mark_of_turn(number) in text.lower()
        ]
        if not changed:
            return
        roles = dict.fromkeys(str(one["role"]) for one in changed)
        yield self.finding(
            f"the chat template changes the contents of {' and '.join(roles)} turns:"
            f" {_describe_change(changed[0]['content'], text)}",
            "in the chat template, write contents as they are: {{ message.content }}, or {{ message.content | trim"
            " }}",
            cases=[
                Case(f"{one['role']}: {_describe_change(one['content'], text)}") for one in changed
            ],
            count=len(changed),
            total=len(messages),
        )

    @cached_property
    def _render_probe(self) -> tuple[list[Message], str] | None:
        """A chat of long turns with its rendering; without the system turn where the template refuses one."""
        for roles in (("system", "user", "assistant", "user", "assistant"), ("user", "assistant")):
            messages: list[Message] = [
                {"role": role, "content": _long_probe_text_of_turn(number)}
                for number, role in enumerate(roles)
            ]
            text = self.probes.text(messages)
            if text is not None:
                return messages, text
        return None


def _long_probe_text_of_turn(number: int) -> str:
    """A text of many forms that no other turn holds."""
    parts = (
        f"{_unique_mark_of_turn(number)}{i}: {FORMS[i % len(FORMS)]}" for i in range(FORMS_PER_TURN)
    )
    return "".join(parts).strip()


def _unique_mark_of_turn(number: int) -> str:
    """What no other turn of the probe holds."""
    return f"note{number}x"


def _describe_change(content: str, text: str) -> str:
    """Where a content first differs from what is written of it."""
    # By bisection: a beginning of the content is in the text, or it is not, and then no longer one is.
    low, high = 0, len(content)
    while low < high:
        middle = (low + high + 1) // 2
        if content[:middle] in text:
            low = middle
        else:
            high = middle - 1
    if low == 0:
        return f"none of its {len(content):,} characters is written unchanged"
    return f"only the first {low:,} of {len(content):,} characters are written unchanged"
