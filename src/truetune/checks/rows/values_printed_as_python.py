"""The template prints a list or an object of the row as Python text.

## What it does
Looks for contents and arguments that are lists or objects, and checks whether the template writes them into the prompt
as Python prints them: `[{'type': 'text', 'text': ...}]`. It also looks for null contents, which some templates print as
`None` with older releases of transformers; newer ones leave null out. It ignores tool definitions, which are printed
for the served model in the same way, and single values inside arguments (`True`), which some templates write so by
design. It is an error, or a warning if only null is printed.

## Why it is bad
The model learns quotes and brackets around its words. Servers give the same template plain text, so that what the model
was trained on never occurs again. Parsers of tool calls expect JSON and fail on single quotes.

## Example
```yaml
files:
  chat_template.jinja: >-
    {% for m in messages %}<|im_start|>{{ m.role }}

    {{ m.content }}<|im_end|>

    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant

    {% endif %}
data:
  - messages:
      - {role: user, content: [{type: text, text: "Is it open?"}]}
      - {role: assistant, content: [{type: text, text: It is open.}]}
```

## Use instead
```yaml
files:
  chat_template.jinja: >-
    {% for m in messages %}<|im_start|>{{ m.role }}

    {{ m.content }}<|im_end|>

    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant

    {% endif %}
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - {role: assistant, content: It is open.}
```

## Fix safety
Text parts can be joined, arguments written as JSON text, and null as an empty string: `truetune fix` tries each on the
row. Parts that are images need a template that supports them.

## References
- abetlen/llama-cpp-python#2324, huggingface/transformers#45422
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_character, side_of_pair_name
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.python_values_in_renderings import PythonValueFinder
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch, Example
from truetune.errors import shorten_name

NULL = "null"
KINDS = {"object": "an object", "list": "a list", NULL: "null, as None"}
ABOUT_NULL = "null is printed by older releases of transformers, which pass it to the template; newer ones leave it out"


class ValuesPrintedAsPython(DataRule):
    code = "ROW015"
    fault = Fault.ROWS_CHANGED_BY_TEMPLATE
    symptoms = ("garbage-output",)
    severity = "error"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.values = PythonValueFinder(setup.probes, setup.spec.template_kwargs)
        self.rows: set[int] = set()
        self.kinds: Counter[str] = Counter()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of a batch in which the template prints a value as Python text."""
        for side in filter(None, (batch, batch.rejected_sides)):
            for i, example in enumerate(side.examples):
                if example.row.is_chat:
                    self._count_printed_value(
                        side, i, example, is_other=side is batch.rejected_sides
                    )

    def findings(self) -> Iterator[Finding]:
        if not self.rows:
            return
        kinds = ", ".join(f"{KINDS[kind]} ({count:,})" for kind, count in self.kinds.most_common())
        only_null = set(self.kinds) == {NULL}
        yield self.finding(
            f"{len(self.rows):,} rows contain values that the template prints as Python text, which the model learns"
            f" to write: {kinds}",
            "write contents and arguments as text (`truetune fix` does it where it is safe), or use a chat template"
            " that supports content parts",
            severity="warning" if only_null else None,
            evidence=[ABOUT_NULL] if NULL in self.kinds else [],
            cases=self.cases,
            count=len(self.rows),
        )

    def unmet(self) -> Unmet | None:
        """Unmet without values of chats that are no text."""
        return (
            None
            if self.values.examined_answers
            else Unmet("it is about values of chats that are no text, and there are none")
        )

    def measurement_if_clean(self) -> Measurement:
        """That no value is printed as Python text by the template."""
        return make_count_measurement(
            "values that the template prints as Python text", 0, self.values.examined_answers
        )

    def _count_printed_value(
        self, batch: Batch, i: int, example: Example, *, is_other: bool
    ) -> None:
        """Count a row in which a value is printed; its other examples are not looked at then."""
        number = example.row.origin.row
        if number in self.rows:
            return
        value = self.values.first_printed_python_value(example)
        if value is None:
            return
        self.rows.add(number)
        self.kinds[value.kind] += 1
        if len(self.cases) < MAX_CASES:
            case = case_at_character(
                batch, i, value.start, f"printed as {shorten_name(value.text)}", value.turn
            )
            self.cases.append(
                replace(case, side=side_of_pair_name("rejected")) if is_other else case
            )
