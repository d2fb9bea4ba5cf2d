"""Answers are damaged texts: spaces, line breaks, punctuation or letters were lost, or something was added.

## What it does
Looks in answers for damage that is visible in the text itself:

- lost: spaces between sentences, line breaks of lists and code, the numbers of list items, all punctuation or all
  capitals of long texts, the beginning or the end of a sentence, the list of sources that numbers refer to,
- added: spaces before full stops, a word twice in a row, words split at line ends, no-break spaces and invisible
  characters, letters of two alphabets in one word, full-width Latin letters, backslashes before punctuation, doubled
  quotes, one text twice, list numbers around the rows, lines of a page or an app (page numbers, `Copy code`), and
  annotations for a program (`<<48/2=24>>`, `[[File:map.png|thumb]]`, `.[citation needed]`, `[PERSON_1]`),
- left by a program: ids and emoji names of a chat program (`<@U02AB34CD>`), a time and a speaker in front, the mail
  that is quoted below, notices (`Kim joined the chat`), marks of an anonymiser (`[EMAIL]`), pieces of tokens (`work
  ##ing`, `<unk>`), letters apart, question marks in words, several candidates, another task after the answer, loops of
  the same words up to the limit of a sampler,
- written by a failed script: objects as a program prints them (`content='...' response_metadata={}`, `tensor(3)`),
  error messages of a request instead of the answer, formulas without backslashes or without their second sign, Arabic
  or Hebrew words written backwards, accents that are characters of their own,
- of code: lost line breaks or indentation, line numbers, plus signs of a diff, prompts of an interpreter, conflicts.

It ignores other code and formulas, and what the prompt asks for or explains (numbered sources, options, a beginning
that the answer continues, lower case, a word 30 times). It reports a kind of damage from 3 % of the answers and at
least 5. Beginnings and ends inside a sentence count from 12 %. These, and texts without punctuation, count as a style
if most answers have them. Of more than 2,000 rows, every eighth is checked.

## Why it is bad
The model learns to write like this. The loss falls as usual, and every answer of the tuned model has the damage of the
script that made the rows: a join without spaces, an extraction from HTML or PDF, an off-by-one slice.

## Example
```yaml
data:
  rows: 12
  instruction: "What is in row {i}? {words}"
  output: "Row {i} holds {words}.It is short.The loader reads it then."
```

## Use instead
```yaml
data:
  rows: 12
  instruction: "What is in row {i}? {words}"
  output: "Row {i} holds {words}. It is short. The loader reads it then."
```

## Fix safety
What was lost is only in the source, so build the rows again from it. Characters that were added can be removed.

## References
- adbar/trafilatura#660, acl-org/acl-anthology#9764, alan-turing-institute/ReadabiliPy#39
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import (
    NO_ANSWERS,
    AnswerText,
    learned_answers_of_row,
    text_besides_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message, case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rows.evidence.damage_of_texts import (
    Damage,
    DamageKind,
    find_damage,
)
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

ALL_ROWS_UP_TO, STRIDE = 2_000, 8
"""Rows that are all looked at, and of the others each so manieth: a share is known to a percent by 2,000 rows, and an
answer takes 0.2 ms"""
MIN_ANSWERS = 5
STANDARD_ERRORS = 2
"""By which a share is above that of sound sets: of 40 sound answers about documentation 6 began inside of a sentence"""


class AnswersAreDamagedTexts(DataRule):
    code = "ROW079"
    fault = Fault.TRAINING_ANSWERS_DAMAGED
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.answers = 0
        self.kinds: Counter[DamageKind] = Counter()
        self.cases: dict[DamageKind, list[Case]] = {}

    def add_batch(self, batch: Batch) -> None:
        """Count the damaged answers of a batch by kind."""
        for row in batch.rows:
            self.rows += 1
            if self.rows > ALL_ROWS_UP_TO and self.rows % STRIDE:
                continue
            # Documents that a template writes are numbered sources too, and a plain text holds its own task.
            prompt = (
                text_besides_answers(row)
                + (" [1]" if row.documents else "")
                + (" task" if row.text is not None else "")
            )
            for answer in learned_answers_of_row(row):
                self.answers += 1
                damage = find_damage(answer.text, prompt)
                if damage is not None:
                    self._count_and_keep_damaged_answer(damage, batch, row, answer)

    def _count_and_keep_damaged_answer(
        self, damage: Damage, batch: Batch, row: Conversation, answer: AnswerText
    ) -> None:
        """Count a damaged answer, and keep the first ones of each kind."""
        self.kinds[damage.kind] += 1
        cases = self.cases.setdefault(damage.kind, [])
        if len(cases) >= MAX_CASES:
            return
        text = f"{damage.kind.name}: {damage.excerpt!r}"
        is_turn = answer.message is not None
        cases.append(
            case_in_message(batch, row, answer.message or 0, text)
            if is_turn
            else case_in_row(batch, row, text)
        )

    def unmet(self) -> Unmet | None:
        """Unmet without answers in words."""
        return None if self.answers else NO_ANSWERS

    def measurement_if_clean(self) -> Measurement:
        """How many of the answers are damaged, by any kind."""
        return make_count_measurement("damaged answers", self.kinds.total(), self.answers)

    def findings(self) -> Iterator[Finding]:
        frequent = [
            (kind, count)
            for kind, count in self.kinds.most_common()
            if self._is_damage_unusually_frequent(kind, count)
        ]
        if not frequent:
            return
        kinds = ", ".join(f"{kind.name} ({count:,})" for kind, count in frequent)
        count = sum(count for _, count in frequent)
        yield self.finding(
            f"{count:,} of {self.answers:,} answers are damaged texts, and the model learns to write so: {kinds}",
            "; ".join(kind.remedy for kind, _ in frequent),
            cases=[case for kind, _ in frequent for case in self.cases[kind]][:MAX_CASES],
            count=count,
            total=self.answers,
        )

    def _is_damage_unusually_frequent(self, kind: DamageKind, count: int) -> bool:
        """Do more answers have a kind of damage than sound sets have, and not so many that it is their style?"""
        least, most = kind.shares
        # Of a few dozen answers a share is known to some percent only.
        error = math.sqrt(least * (1 - least) / self.answers)
        return (
            count >= MIN_ANSWERS and least + STANDARD_ERRORS * error <= count / self.answers <= most
        )
