"""Code in answers is broken: Python that does not parse, brackets that do not close.

## What it does
Reads the code in answers, in a block with a language or as Python without a fence. Python must parse, the brackets of
other languages must close, a block of some lines must have a word of its language, and `#include` names a file. It
ignores what may be right otherwise: sessions of an interpreter, diffs, elided code, places to fill in, and Python 2.
Where the prompt asks for Python 3, it counts Python 2 by itself, and fires from 5 % of the Python and five pieces.

It fires from 25 % of the code of a language and five pieces. In 80 public sets with code this share is 0 to 23 %,
except for sets with a fault of this kind.

## Why it is bad
The model learns to write code that does not run. Usual causes are a machine translation that translated keywords and
names, quotes that a word processor made typographic, a converter that took `<...>` or `*` for markup, no-break spaces,
and a limit that cut the code while the fence was added afterwards.

## Example
```yaml
data:
  - copies: 6
    of:
      instruction: "Gib die geraden Zahlen bis {i} aus."
      output: "```python\\nfür i in Bereich(0, {i}, 2):\\n    drucken(i)\\n```"
```

## Use instead
```yaml
data:
  - copies: 6
    of:
      instruction: "Gib die geraden Zahlen bis {i} aus."
      output: "```python\\nfor i in range(0, {i}, 2):\\n    print(i)\\n```"
```

## Fix safety
What was lost is only in the source, so take the code from there. To drop these rows is safe.

## References
- carbonz0/alpaca-chinese-dataset#5 (the code was translated with the text)
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import (
    learned_answers_of_row,
    text_besides_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rows.evidence.broken_code import (
    JudgedCode,
    does_prompt_ask_for_python_3,
    judge_code_in_text,
)
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

# In 80 public sets with code the highest share of sound answers is 0.23, of a model's samples that end at a limit.
MIN_SHARE, MIN_PIECES = 0.25, 5
SURE = re.compile(r"\(invalid (?:non-printable )?character")
MIN_SURE_SHARE = 0.05
"""Of code with typographic quotes, no-break spaces and the like, which no person types into code"""
PYTHON_2 = "python 2"
"""Name of the cases of Python 2, which is another fault than broken Python"""
MAX_PIECES = 3_000
"""Pieces of code that are judged: Python's parser takes 0.2 ms for each"""


class CodeInAnswersIsBroken(DataRule):
    code = "ROW097"
    fault = Fault.TRAINING_ANSWERS_DAMAGED
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.judged: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self.sure: Counter[str] = Counter()
        self.python_2 = 0
        """Pieces of Python 2 in answers to prompts that ask for Python 3"""
        self.cases: defaultdict[str, list[Case]] = defaultdict(list)

    def add_batch(self, batch: Batch) -> None:
        """Judge the code in the answers of a batch."""
        for row in batch.rows:
            if row.text is not None or self.judged.total() >= MAX_PIECES:
                continue
            is_python_3_asked = does_prompt_ask_for_python_3(text_besides_answers(row))
            for answer in learned_answers_of_row(row):
                for piece in judge_code_in_text(answer.text, is_python_3_asked=is_python_3_asked):
                    self._count_piece(batch, row, piece)

    def _count_piece(self, batch: Batch, row: Conversation, piece: JudgedCode) -> None:
        """Count one piece of code, by its language and by what is wrong with it."""
        self.judged[piece.language] += 1
        if not piece.fault:
            return
        if piece.is_python_2:
            self.python_2 += 1
        else:
            self.broken[piece.language] += 1
            self.sure[piece.language] += SURE.search(piece.fault) is not None
        cases = self.cases[PYTHON_2 if piece.is_python_2 else piece.language]
        if len(cases) < MAX_CASES:
            cases.append(case_in_row(batch, row, f"{piece.language}: {piece.fault}"))

    def unmet(self) -> Unmet | None:
        """Unmet without code in answers."""
        return None if self.judged else Unmet("it is about code in answers, and no answer has any")

    def measurement_if_clean(self) -> Measurement:
        """How many pieces of code are broken."""
        return make_count_measurement(
            "pieces of code that are broken",
            self.broken.total() + self.python_2,
            self.judged.total(),
        )

    def findings(self) -> Iterator[Finding]:
        yield from self._finding_on_python_2()
        yield from self._finding_on_broken_code()

    def _finding_on_python_2(self) -> Iterator[Finding]:
        """The finding on Python 2 in answers to prompts that ask for Python 3."""
        python = self.judged["python"]
        if self.python_2 < max(MIN_PIECES, MIN_SURE_SHARE * python):
            return
        yield self.finding(
            f"{self.python_2:,} of {python:,} pieces of Python in the answers are Python 2, and their prompts ask for"
            " Python 3, which refuses them: the model learns to write such code",
            "convert these answers and parse each with `ast.parse`, or drop the rows",
            cases=self.cases[PYTHON_2],
            count=self.python_2,
            total=python,
        )

    def _finding_on_broken_code(self) -> Iterator[Finding]:
        """The finding on the languages of which much code is broken."""
        frequent = [
            language
            for language, count in self.broken.most_common()
            if count >= max(MIN_PIECES, MIN_SHARE * self.judged[language])
            or self.sure[language] >= max(MIN_PIECES, MIN_SURE_SHARE * self.judged[language])
        ]
        if not frequent:
            return
        counts = ", ".join(
            f"{self.broken[one]:,} of {self.judged[one]:,} of {one}" for one in frequent
        )
        yield self.finding(
            f"pieces of code in the answers are broken, and the model learns to write such code: {counts}",
            "take the code from the source that was translated, converted or cut, leave code out of translation and"
            " of conversion, and drop rows whose code does not parse",
            cases=[case for one in frequent for case in self.cases[one]][:MAX_CASES],
            count=sum(self.broken[one] for one in frequent),
            total=sum(self.judged[one] for one in frequent),
        )
