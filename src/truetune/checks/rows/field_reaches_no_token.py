"""A field of the rows is missing from the training text, because the chat template does not write it.

## What it does
Looks for fields of chats (`tool_calls`, `tools`, tool results, contents of a role, `documents`, images, names) of which
no character is in any training text of their row, for single calls of several, and for tools without their
descriptions. truetune knows for each character of the rendered text which field it
comes from, for any template. A field whose words are in the content too is not lost. Reasoning is judged by
`thinking-stripped-from-history`, unless nothing else is left of its turn. It is an error if a trained turn loses its
calls or is left empty, and a warning if the model sees less than the row contains. It is an info for names, and for
other keys of messages that contain sentences.

## Why it is bad
Nothing fails. A turn that only calls a tool is trained as an empty answer. An answer that is based on a tool's result
is trained without that result, and the model learns to make it up.

## Example
```yaml
files:
  chat_template.jinja: >-
    {% for m in messages %}<|im_start|>{{ m.role + ': ' + m.content }}<|im_end|>{% endfor %}
    {%- if add_generation_prompt %}<|im_start|>assistant: {% endif %}
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - role: assistant
        content: ""
        tool_calls: [{type: function, function: {name: hours, arguments: {day: Monday}}}]
```

## Use instead
```yaml
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - role: assistant
        content: ""
        tool_calls: [{type: function, function: {name: hours, arguments: {day: Monday}}}]
```

## Fix safety
Another template changes the prompts: serve the model with the same one. If you write tool calls into the content, you
need a parser that reads their format.

## References
- huggingface/trl#5517, axolotl-ai-cloud/axolotl#3824
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_CHATS
from truetune.checks.recognise_prose_and_media_columns import is_prose
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.render.row_fields_lost_in_rendering import FieldTracker, LostField
from truetune.settings.run_spec import Severity

EFFECTS = {
    "empties": "nothing of the turn is left, so it is trained as an empty answer",
    "changes": "its turn is trained without it",
    "loses": "no training text contains it",
}
WRITE_FIELDS = (
    "use a chat template that writes them (check it with --template FILE, and train and serve with it), or write"
    " them into `content` as text"
)
NOTHING_TO_DO = (
    "if the model need not see them, change nothing; otherwise write them into `content`"
)


class FieldReachesNoToken(DataRule):
    code = "ROW017"
    fault = Fault.COLUMNS_MISSING_FROM_TRAINING_TEXT
    symptoms = ("nothing-is-learned",)
    severity = "error"
    moot_where = ("turn-roles-unknown-to-template",)
    by_trainer = (SeverityByFact("template", {"own": MOOT}),)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.tracker = FieldTracker(setup.probes.renderer())
        self.chats = 0
        self.rows: dict[tuple[Severity, str], set[int]] = defaultdict(set)
        self.cases: dict[tuple[Severity, str], list[Case]] = defaultdict(list)
        self.effects: Counter[tuple[str, str]] = Counter()  # turns by field and effect
        self.all_lost: dict[str, set[int]] = defaultdict(set)

    def add_batch(self, batch: Batch) -> None:
        """Count the fields of a batch's chats that reach no token."""
        self.chats += batch.chats
        # A row may have several examples, one after the other: a field is lost if none of them
        # contains it.
        for side in filter(None, (batch, batch.rejected_sides)):
            for _, examples in groupby(side.examples, lambda example: example.row.origin.row):
                own = list(examples)
                self._count_lost_fields(
                    side,
                    own[0].row,
                    self.tracker.fields_lost_from_training_examples(
                        own[0].row, [one.rendering for one in own]
                    ),
                )

    def _count_lost_fields(self, side: Batch, row: Conversation, lost: list[LostField]) -> None:
        """Count the lost fields of one row, each field once a row."""
        for field in lost:
            severity = _severity_of_loss(row, field)
            if field.is_known:
                self.all_lost[field.field].add(row.origin.row)
            if severity is None:
                continue
            self.effects[field.field, field.effect] += 1
            key = severity, field.field
            if row.origin.row not in self.rows[key] and len(self.cases[key]) < MAX_CASES:
                text, at = f"{field.field}: {EFFECTS[field.effect]}", field.message
                self.cases[key].append(
                    Case(text, row.origin) if at is None else case_in_message(side, row, at, text)
                )
            self.rows[key].add(row.origin.row)

    def unmet(self) -> Unmet | None:
        """Unmet without chats."""
        return None if self.chats else NO_CHATS

    def measurement_if_clean(self) -> Measurement:
        """That no chat has a field that reaches no token."""
        return make_count_measurement("chats with a field that reaches no token", 0, self.chats)

    def report_data(self) -> dict[str, dict[str, int]]:
        """The number of rows that lose each field, for the report's `data`."""
        lost = Counter({field: len(rows) for field, rows in self.all_lost.items()})
        return {"lost_fields": dict(lost.most_common())} if lost else {}

    def findings(self) -> Iterator[Finding]:
        for (severity, field), rows in sorted(self.rows.items(), key=lambda one: -len(one[1])):
            count = "1 row" if len(rows) == 1 else f"{len(rows):,} rows"
            yield self.finding(
                f"{field} of {count} are missing from the training text: the chat template does not write them",
                NOTHING_TO_DO if severity == "info" else WRITE_FIELDS,
                severity=severity,
                evidence=self._describe_what_is_left_of_turns(field) if severity == "error" else (),
                cases=self.cases[severity, field],
                count=len(rows),
                total=self.chats,
            )

    def _describe_what_is_left_of_turns(self, field: str) -> Iterator[str]:
        """What is left of the turns that lose a field."""
        empty, changed = self.effects[field, "empties"], self.effects[field, "changes"]
        if empty:
            yield (
                f"{empty:,} trained turns are empty without them: the model learns to answer nothing"
            )
        if changed:
            yield (
                f"{changed:,} trained turns have other content: the model learns to end them without the call"
            )


def _severity_of_loss(row: Conversation, lost: LostField) -> Severity | None:
    """How bad it is; None where it is not told: another rule judges it, or it is no text that a model should see."""
    if lost.effect != "loses":
        return "error"
    if lost.is_reasoning:
        return None
    if lost.is_known:
        return "info" if lost.field == "names" else "warning"
    value = None if lost.message is None else row.messages[lost.message].get(lost.field)
    return "info" if isinstance(value, str) and is_prose(value) else None
