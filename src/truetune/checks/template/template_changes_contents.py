"""The chat template leaves out, repeats or changes contents, or writes them under another role.

## What it does
Renders a chat whose system, user and assistant turns contain long texts with line breaks, capitals, quotes and code,
and looks for each of them, complete and once, in what the template writes. White space at both ends may be missing. If
nothing of a system turn is written, `field-reaches-no-token` reports it, on rows that have one. It also fires if

- the turns are in another order,
- a user turn after a system turn is written as an answer is otherwise: the template goes by the place of a turn and not
  by its role,
- a system turn of the template's own comes beside that of rows which have one (a warning).

## Why it is bad
A template that cuts a content (`content[:500]`, `truncate`), takes a part of it (`split`), changes it (`lower`,
`replace`, `tojson`), or writes only the last turns (`messages[-2:]`) does so in each row and in each request. The model
learns from other texts than the rows contain, and nothing fails.

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
from truetune.encoding.batch import Batch
from truetune.render.template_probes import ANSWER, QUESTION, alternating_chat

# Long enough for cuts at the usual 100 to 1,000 characters; each turn has marks of its own, so that
# one turn's text is never taken for another's.
FORMS_PER_TURN = 60
FORMS = (
    "The Nordic Pool opens at 9:00 and closes at 18:30.\n\n",
    "def area(radius):\n    return 3.14 * radius ** 2\n\n",
    'She said: "It\'s 5 < 7 & 8 > 6", and left.\n\n',
    "Crème brûlée, ΑΒΓ, 你好.\n\n",
)
NEXT_QUESTION = "Is it open on Sundays?"
MIN_HEADER_CHARACTERS = 12
"""Of a system turn's header. Chosen: `<|im_start|>system` has more, a mark that opens any turn fewer"""
SYSTEM = "Reply in one sentence."


class TemplateChangesContents(DataRule):
    code = "TPL015"
    fault = Fault.ROWS_CHANGED_BY_TEMPLATE
    symptoms = ("nothing-is-learned", "garbage-output")
    severity = "error"
    judges_without_rows = True
    has_system_turns = False
    """Of the rows, where there are some"""

    def add_batch(self, batch: Batch) -> None:
        """See whether a row has a system turn of its own."""
        self.has_system_turns = self.has_system_turns or any(
            message.get("role") == "system"
            for example in batch.examples
            for message in example.row.messages[:1]
        )

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
        yield from self._finding_on_turns_not_written_once(messages, text)
        yield from self._finding_on_order_of_turns(messages, text)
        yield from self._finding_on_roles_by_place()
        yield from self._finding_on_second_system_block()
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

    def _finding_on_turns_not_written_once(
        self, messages: list[Message], text: str
    ) -> Iterator[Finding]:
        """The finding on turns of user and assistant that are left out, and on turns that are written again."""
        counts = _count_writings_of_turns(messages, text)
        # A system turn that is not written is another rule's; some templates have no place for one.
        faulty = {
            turn: f"{count} times" if count else "nowhere"
            for turn, count in counts.items()
            if count > 1 or (count == 0 and not turn.startswith("system"))
        }
        # A template that writes no answer at all renders prompts alone.
        if not faulty or not any(count for turn, count in counts.items() if "assistant" in turn):
            return
        turn, written = next(iter(faulty.items()))
        yield self.finding(
            f"the chat template does not write each turn once: {turn} is written {written}",
            "in the chat template, go through all messages ({% for message in messages %}), and write each content at"
            " one place",
            cases=[Case(f"{turn}: written {written}") for turn, written in faulty.items()],
            count=len(faulty),
            total=len(messages),
        )

    def _finding_on_order_of_turns(self, messages: list[Message], text: str) -> Iterator[Finding]:
        """The finding on turns of user and assistant that are written in another order."""
        lowered = text.lower()
        places = [
            lowered.find(f"{_unique_mark_of_turn(number)}0:")
            for number, one in enumerate(messages)
            if one["role"] != "system"
        ]
        if -1 in places or places == sorted(places):
            return
        yield self.finding(
            "the chat template writes the turns in another order than the chat has: the last one comes"
            f" {'first' if places[-1] == min(places) else 'earlier'}",
            "in the chat template, go through the messages in their order ({% for message in messages %})",
        )

    def _text_from_last_mark(self, text: str) -> str:
        """The end of a text from its last control token on; its last character where it has none."""
        added = self.tokenizer.backend.get_added_tokens_decoder()
        marks = [token.content for id, token in added.items() if id in self.tokenizer.control]
        return text[max((text.rfind(mark) for mark in marks), default=-1) :]

    def _finding_on_second_system_block(self) -> Iterator[Finding]:
        """The finding on a template that writes a system turn of its own before that of the rows."""
        if not self.has_system_turns:
            return
        text = self.probes.text(
            [{"role": "system", "content": SYSTEM}, *alternating_chat(QUESTION, ANSWER)]
        )
        if text is None or text.count(SYSTEM) != 1 or text.find(SYSTEM) > text.find(QUESTION):
            return
        before = text[: text.index(SYSTEM)]
        header = self._text_from_last_mark(before)
        own_turn = _text_behind_first_header(before, header)
        # A header of one token says nothing of the role; other marks may follow it in each turn.
        if len(header.strip()) < MIN_HEADER_CHARACTERS or not own_turn:
            return
        yield self.finding(
            f"the chat template writes a system turn of its own beside that of the rows: {own_turn[:60]!r} comes before"
            " it in each chat",
            "write the own system turn only where the chat has none ({% if messages[0].role != 'system' %})",
            severity="warning",
            evidence=[f"both begin with {header!r}"],
        )

    def _finding_on_roles_by_place(self) -> Iterator[Finding]:
        """The finding on a template that takes a user turn for an answer once a system turn stands before it."""
        chat = alternating_chat(QUESTION, ANSWER, NEXT_QUESTION)
        plain = self.probes.text(chat)
        after_system = self.probes.text([{"role": "system", "content": SYSTEM}, *chat])
        if plain is None or after_system is None:
            return
        before_answer = _text_between(plain, QUESTION, ANSWER)
        before_question = _text_between(plain, ANSWER, NEXT_QUESTION)
        now = _text_between(after_system, QUESTION, ANSWER)
        if None in (before_answer, before_question, now) or before_answer == before_question:
            return
        if now == before_question:
            yield self.finding(
                "the chat template goes by the place of a turn and not by its role: after a system turn, questions are"
                f" written as answers, and answers as questions ({now!r} comes before an answer)",
                "in the chat template, choose the header by message.role",
                evidence=[f"without a system turn, {before_answer!r} comes before an answer"],
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


def _count_writings_of_turns(messages: list[Message], text: str) -> dict[str, int]:
    """How often each turn of the probe is written, by its role and place: `user turn 2 of 5`."""
    lower = text.lower()
    return {
        f"{one['role']} turn {number + 1} of {len(messages)}": lower.count(
            f"{_unique_mark_of_turn(number)}0:"
        )
        for number, one in enumerate(messages)
    }


def _text_behind_first_header(before: str, header: str) -> str:
    """What is between a header and the same header at the end of a text; empty where it is there once alone."""
    if not before.rstrip().endswith(header.rstrip()):
        return ""
    first, last = before.find(header), len(before) - len(header)
    if first < 0 or first == last:
        return ""
    return before[first + len(header) : last].strip()


def _text_between(text: str, first: str, second: str) -> str | None:
    """What is between two contents, in this order; None where it does not hold both so."""
    start, end = text.find(first), text.find(second)
    return text[start + len(first) : end] if 0 <= start < end else None


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
