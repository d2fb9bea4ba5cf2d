"""Many answers begin or end with one label, id or line that is no part of what is asked for.

## What it does
Compares the beginnings and the last lines of the answers, with digits and ids taken as equal. It fires if

- 20 % of the answers and ten begin with one label (`Answer:`, `Output:`), and others neither do so nor begin with other
  words and a colon (`Here you go:`), as sets of several forms do,
- 10 % and ten begin with an id (a UUID, a hash, a time stamp),
- 10 % and ten end with one short line of a grading or a count (`Score: 8/10`, `Words: 120`),
- half of the plain texts begin with the same 80 characters (a licence, the head of a page).

It ignores labels and words that the prompts of these rows contain.

## Why it is bad
The model learns to write the mark: it is the surest part of every answer. A score or an id that it invents is read as
true, and a licence in front of each text takes its part of all training tokens.

## Example
```yaml
data:
  - {copies: 20, of: {instruction: "What is red?", output: "Answer: a rose."}}
  - {copies: 20, of: {instruction: "What is blue?", output: "The sea is blue."}}
```

## Use instead
```yaml
data:
  - {copies: 20, of: {instruction: "What is red?", output: "A rose is red."}}
  - {copies: 20, of: {instruction: "What is blue?", output: "The sea is blue."}}
```

## Fix safety
It is safe to cut these marks off in the script that makes the rows.

## References
- https://github.com/gururise/AlpacaDataCleaned
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import (
    NO_ANSWERS,
    learned_answers_of_row,
    text_besides_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

# Words for the answer itself: people begin with `In short:` and `Note:` as well.
LABEL = re.compile(
    r"\s*[#*\[<]{0,4}(Answer|Output|Response|Result|Completion|Assistant|Solution|Reply|Text|Target|Translation|Summary|"
    r"Label|Antwort|R\u00e9ponse|Respuesta|A)[\]>*]{0,3}:(?:\*\*)?\s+\S"
)
LEAD_IN = re.compile(r"\s*[*#]{0,3}([^\W\d_](?:[^\W\d_]|['\u2019 ]){1,30}):(?:\*\*)?\s+\S")
"""Words before what an answer says, which people write as well"""
LEAD_IN_SHARE = 0.5
"""Of the answers with a label, that begin with one other lead-in: then the beginnings vary on purpose"""
ID = re.compile(
    r"\s*[\[(#]?(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{24,64}"
    r"|\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}\S{0,10}|\d{10,19})[\])]?[\s:,|]+\S",
    re.IGNORECASE,
)
MIN_LINE_CHARACTERS, MAX_LINE_CHARACTERS = 4, 60
"""Of a last line that may be a mark"""
# Results stand in last lines as well, so these are the words of gradings and of what programs count.
SAYS_A_MEASURE = re.compile(
    r"\W{0,4}(?:overall |final |quality )?(?:score|rating|grade|quality|confidence|difficulty|words?|word count|"
    r"tokens?|characters|length|temperature|model|source|id|page|url|category|topic|tags?|bewertung|punkte)\b[^\n:]{0,12}[:=]",
    re.IGNORECASE,
)
NUMBERS = re.compile(r"\d+(?:[.,]\d+)*")
WORD = re.compile(r"[^\W\d_]{3,}")
LABEL_KIND, ID_KIND = "begin with the label", "begin with an id"
LINE_KIND, HEAD_KIND = "end with the line", "begin with the same text"
# In LLaMA-Factory's sets no label is at the beginning of more than 2 % of the answers, and no such line at the end of
# more than 3 %.
MIN_SHARE, MIN_ROWS = 0.1, 10
MIN_LABEL_SHARE = 0.2
"""Share of the answers with one label: sets of several forms on purpose have some 10 %"""
NEARLY_ALL = 0.95
"""Share of the answers with one label, from which it is their form"""
HEAD_CHARACTERS, HEAD_SHARE = 80, 0.5
MAX_KEPT = 2_000
"""Different marks that are counted"""


class AnswersShareAMarkAtTheirEnds(DataRule):
    code = "ROW094"
    fault = Fault.TRAINING_ANSWERS_DAMAGED
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.answers = self.texts = 0
        self.marks: Counter[tuple[str, str]] = Counter()
        self.lead_ins: Counter[str] = Counter()
        self.cases: dict[tuple[str, str], list[Case]] = {}

    def add_batch(self, batch: Batch) -> None:
        """Count the marks at the ends of a batch's answers."""
        for row in batch.rows:
            prompt = text_besides_answers(row).lower()
            for answer in learned_answers_of_row(row):
                self.answers += 1
                self.texts += row.text is not None
                self._count_lead_in(answer.text)
                for kind, mark in _marks_of(answer.text, prompt, is_plain=row.text is not None):
                    self._keep(kind, mark, batch, row, answer.text)

    def _count_lead_in(self, text: str) -> None:
        """Count the words and the colon that an answer begins with, if they are no label."""
        lead_in = LEAD_IN.match(text)
        if lead_in is None or LABEL.match(text):
            return
        if lead_in[1] in self.lead_ins or len(self.lead_ins) < MAX_KEPT:
            self.lead_ins[lead_in[1]] += 1

    def _keep(self, kind: str, mark: str, batch: Batch, row: Conversation, text: str) -> None:
        """Count a mark, and keep the first answers that have it."""
        key = (kind, mark)
        if key not in self.marks and len(self.marks) >= MAX_KEPT:
            return
        self.marks[key] += 1
        cases = self.cases.setdefault(key, [])
        if len(cases) < MAX_CASES:
            shown = f"it ends {text[-50:]!r}" if kind == LINE_KIND else f"it begins {text[:50]!r}"
            cases.append(case_in_row(batch, row, shown))

    def unmet(self) -> Unmet | None:
        """Unmet without answers in words."""
        return None if self.answers else NO_ANSWERS

    def measurement_if_clean(self) -> Measurement:
        """How many answers share the commonest mark."""
        commonest = max(self.marks.values(), default=0)
        return make_count_measurement(
            "answers that share the commonest label, id or last line", commonest, self.answers
        )

    def findings(self) -> Iterator[Finding]:
        for (kind, mark), count in self.marks.most_common():
            if not self._is_frequent(kind, count):
                continue
            what = f"{kind} {mark[:60]!r}" if mark else kind
            yield self.finding(
                f"{count:,} of {self.answers:,} answers {what}, which the model learns to write",
                "cut it off in the script that makes the rows",
                cases=self.cases[kind, mark],
                count=count,
                total=self.answers,
            )
            return

    def _is_frequent(self, kind: str, count: int) -> bool:
        """Do enough answers have a mark, and not all of them on purpose?"""
        if kind == HEAD_KIND:
            return count >= max(MIN_ROWS, HEAD_SHARE * self.texts)
        other_lead_ins = max(self.lead_ins.values(), default=0)
        is_form = kind == LABEL_KIND and (
            count >= NEARLY_ALL * self.answers or other_lead_ins >= LEAD_IN_SHARE * count
        )
        least = MIN_LABEL_SHARE if kind == LABEL_KIND else MIN_SHARE
        return count >= max(MIN_ROWS, least * self.answers) and not is_form


def _marks_of(text: str, prompt: str, *, is_plain: bool) -> Iterator[tuple[str, str]]:
    """The marks at the ends of a text that its prompt does not speak of."""
    if is_plain:
        head = text[:HEAD_CHARACTERS]
        if len(head) == HEAD_CHARACTERS:
            yield HEAD_KIND, head
        return
    if ID.match(text):
        yield ID_KIND, ""
    label = LABEL.match(text)
    if label is not None and label[1].lower() not in prompt:
        yield LABEL_KIND, f"{label[1]}:"
    line = _last_line(text)
    if not SAYS_A_MEASURE.match(line):
        return
    shape = NUMBERS.sub("0", line)
    words = WORD.findall(shape)
    if words and not any(word.lower() in prompt for word in words):
        yield LINE_KIND, shape


def _last_line(text: str) -> str:
    """The last line of a text of several; empty where it is too short or too long for a mark."""
    before, _, line = text.rstrip().rpartition("\n")
    line = line.strip()
    is_mark = bool(before.strip()) and MIN_LINE_CHARACTERS <= len(line) <= MAX_LINE_CHARACTERS
    return line if is_mark else ""
