"""Answers give another result than the reasoning before them or a column of their row, or reason in another language.

## What it does
Reads answers that name their result (`\\boxed{42}`, `#### 42`, "the answer is B"), and compares it with the row's own
column of right answers (`answer`, `solution`, `ground_truth`, `target`), where that is a number or an option's letter.
Reads answers with reasoning (`<think> ... </think>`, or a field for it), and compares the two:

- the result of the answer (`\\boxed{42}`, "the answer is 42", else its last number, in short answers) is a number that
  the reasoning does not contain,
- the reasoning ends in one option ("so it is B"), and the answer names another,
- the reasoning is in another script than both question and answer,
- the answer repeats the reasoning word for word.

It fires from 5 % of the answers and three of them, if most others agree. If nearly all reasoning is in another script
it is an info, since that may be intended.

## Why it is bad
The model learns that its reasoning does not decide its answer. Usually the two come from different rows or models: the
answers were corrected or shuffled afterwards, and the reasoning was not. Where a column has the right answer, sampled
solutions were never compared with it, and the model learns the wrong ones too. The loss falls as usual.

## Example
```yaml
data:
  - {copies: 12, of: {instruction: "What is 3 plus 4?", output: "<think>3 plus 4 is 7.</think>It is 7."}}
  - {copies: 6, of: {instruction: "What is 5 plus 4?", output: "<think>5 plus 4 is 9.</think>It is 8."}}
```

## Use instead
```yaml
data:
  - {copies: 12, of: {instruction: "What is 3 plus 4?", output: "<think>3 plus 4 is 7.</think>It is 7."}}
  - {copies: 6, of: {instruction: "What is 5 plus 4?", output: "<think>5 plus 4 is 9.</think>It is 9."}}
```

## Fix safety
Drop the rows whose two parts disagree, or sample both parts again in one answer: neither part alone says which is
right. A column of right answers does: keep the answers that agree with it.

## References
- Turpin et al. 2023, Language Models Don't Always Say What They Think (arXiv 2305.04388)
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.base_of_rules_on_answer_texts import (
    learned_answers_of_row,
    text_besides_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.position_of_answered_option import LABEL_IN_FRONT, NAMED_ANSWER
from truetune.checks.rows.gold_answers_missing_or_contradictory import GOLD_COLUMNS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking", "thought")
THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>(.*?)</\1>(.*)", re.DOTALL)
# A part of a time, a date or a fraction (`9:00`, `3/4`) is no number of its own: reasoning says it in other words.
NUMBER = re.compile(
    r"(?<![\w.])(?<!\d[:/])-?\d[\d,]*(?:\.\d+)?(?!\w|[:/]\d)|(?<=[$\u20ac\u00a3])\d[\d,]*(?:\.\d+)?"
)
RESULT = re.compile(
    r"\\boxed\{\s*\\?\$?(-?\d[\d,]*(?:\.\d+)?)\s*(?:\\%|%)?\s*\}|####\s*\$?(-?\d[\d,]*(?:\.\d+)?)"
    r"|\b(?:answer|result|total)(?: is|:)\W{0,4}(-?\d[\d,]*(?:\.\d+)?)",
    re.IGNORECASE,
)
MAX_SHORT_ANSWER = 160
"""Characters of an answer whose last number is its result"""
SCRIPTS = (
    ("Latin", re.compile(r"[A-Za-z\u00c0-\u024f]")),
    ("Chinese or Japanese", re.compile("[\u3040-\u30ff\u3400-\u9fff]")),
    ("Korean", re.compile("[\uac00-\ud7af]")),
    ("Cyrillic", re.compile("[\u0400-\u04ff]")),
    ("Arabic", re.compile("[\u0600-\u06ff]")),
    ("Devanagari", re.compile("[\u0900-\u097f]")),
)
MIN_LETTERS, MAIN_SHARE = 12, 0.6
"""Letters of a text whose script is told, and the share of the script"""
RESULT_KIND = "give a number that their reasoning does not contain"
OPTION_KIND = "name another option than their reasoning ends in"
SCRIPT_KIND = "have reasoning in another script than question and answer"
COLUMN_KIND = "give another result than the row's own column of right answers"
LETTER_RESULT = re.compile(
    r"\\boxed\{\s*(?:\\text\{)?\s*\(?([A-J])\)?\s*\}|\banswer(?: is|:)\W{0,4}([A-J])\b(?!['\u2019 ]\w)"
)
LETTER = re.compile(r"\(?([A-J])\)?")
PERCENT = 100
"""0.5 and 50 % are one result"""
REPEATED_KIND = "repeat their reasoning word for word"
REMEDIES = {
    SCRIPT_KIND: "drop these rows, or write the reasoning in the language of the question",
    COLUMN_KIND: "keep the answers whose result is that of the column, and drop or sample again the others",
}
MIN_REPEATED, MAX_COMPARED = 60, 200
"""Characters of the reasoning that an answer repeats"""
# Chosen, not measured: a slip of a model is rarer, and two rows are chance.
MIN_SHARE, MIN_ROWS = 0.05, 3
MAX_SHARE = 0.5
"""Share of the answers up to which results may disagree: above, the numbers are of another kind"""
NEARLY_ALL = 0.95


class ThoughtAndAnswer(NamedTuple):
    """The two parts of an answer with reasoning."""

    thought: str
    answer: str


class AnswerContradictsItsReasoning(DataRule):
    code = "ROW086"
    fault = Fault.TRAINING_ANSWERS_DAMAGED
    symptoms = ("garbage-output", "odd-metrics")
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = 0
        self.judged: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.cases: dict[str, list[Case]] = {}

    def add_batch(self, batch: Batch) -> None:
        """Compare reasoning and answer in the rows of a batch."""
        for row in batch.rows:
            self._compare_with_column(batch, row)
            parts = thought_and_answer_of_row(row)
            if parts is None:
                continue
            self.rows += 1
            for kind, is_faulty in _judge_parts(parts, text_besides_answers(row)):
                self.judged[kind] += 1
                if is_faulty:
                    self._keep(kind, parts, batch, row)

    def _compare_with_column(self, batch: Batch, row: Conversation) -> None:
        """Compare the result that the answer of a row names with the row's column of right answers."""
        answers = [] if row.is_preference else [one.text for one in learned_answers_of_row(row)]
        gold = _right_answer_in_column(row) if answers else None
        if gold is None:
            return
        name, right = gold
        given = _named_result(answers[-1], is_letter=right.isalpha())
        if given is None:
            return
        self.rows += 1
        self.judged[COLUMN_KIND] += 1
        if _is_same_result(given, right):
            return
        self.kinds[COLUMN_KIND] += 1
        cases = self.cases.setdefault(COLUMN_KIND, [])
        if len(cases) < MAX_CASES:
            cases.append(case_in_row(batch, row, f"`{name}` has {right}, the answer gives {given}"))

    def _keep(self, kind: str, parts: ThoughtAndAnswer, batch: Batch, row: Conversation) -> None:
        """Count an answer that disagrees with its reasoning."""
        self.kinds[kind] += 1
        cases = self.cases.setdefault(kind, [])
        if len(cases) < MAX_CASES:
            thought, answer = parts.thought.strip()[-40:], parts.answer.strip()[-40:]
            cases.append(case_in_row(batch, row, f"reasoning ends {thought!r}, answer {answer!r}"))

    def unmet(self) -> Unmet | None:
        """Unmet where no answer has reasoning."""
        return (
            None
            if self.rows
            else Unmet(
                "it is about answers with reasoning, or beside a column of right answers, and no row has one"
            )
        )

    def measurement_if_clean(self) -> Measurement:
        """How many answers disagree with their reasoning."""
        return make_count_measurement(
            "answers that disagree with their reasoning or a column", self.kinds.total(), self.rows
        )

    def findings(self) -> Iterator[Finding]:
        for kind, count in self.kinds.items():
            judged = self.judged[kind]
            share = count / judged
            if count < MIN_ROWS or share < MIN_SHARE:
                continue
            is_script = kind == SCRIPT_KIND
            if kind in (RESULT_KIND, OPTION_KIND, COLUMN_KIND) and share > MAX_SHARE:
                continue
            yield self.finding(
                f"{count:,} of {judged:,} answers {kind}",
                REMEDIES.get(
                    kind, "drop these rows, or sample reasoning and answer together again"
                ),
                severity="info" if is_script and share >= NEARLY_ALL else "warning",
                cases=self.cases[kind],
                count=count,
                total=judged,
            )


def _right_answer_in_column(row: Conversation) -> tuple[str, str] | None:
    """(column, its value) of the first column that holds the right answer as a number or a letter."""
    raw = row.raw or {}
    for name in GOLD_COLUMNS:
        value = raw.get(name)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            continue
        bare = str(value).strip().removeprefix("$").removesuffix("%").strip()
        if NUMBER.fullmatch(bare):
            return name, _plain_number(bare)
        letter = LETTER.fullmatch(bare)
        if letter is not None:
            return name, letter[1]
    return None


def _named_result(answer: str, *, is_letter: bool) -> str | None:
    """The last result that an answer names as such, a number or a letter; None where it names none."""
    results = (LETTER_RESULT if is_letter else RESULT).findall(answer)
    if not results:
        return None
    last = next(filter(None, results[-1]), "")
    return last if is_letter else _plain_number(last)


def _is_same_result(given: str, right: str) -> bool:
    """Are two results one? Numbers as numbers, and as percents too."""
    if right.isalpha():
        return given == right
    one, other = float(given), float(right)
    return any(math.isclose(one * times, other) for times in (1, PERCENT, 1 / PERCENT))


def thought_and_answer_of_row(row: Conversation) -> ThoughtAndAnswer | None:
    """The reasoning and the answer of the last learned turn of a row; None where it has no reasoning."""
    if not row.is_chat:
        return _split_thought(row.completion or "")
    message = next((one for one in reversed(row.messages) if one.get("role") == "assistant"), None)
    if message is None:
        return None
    content = text_of(message.get("content"))
    field = next((message[name] for name in REASONING_FIELDS if message.get(name)), None)
    if isinstance(field, str):
        return ThoughtAndAnswer(field, content)
    return _split_thought(content)


def _split_thought(text: str) -> ThoughtAndAnswer | None:
    match = THOUGHT.search(text) if "</" in text else None
    return ThoughtAndAnswer(match[2], match[3]) if match is not None and match[2].strip() else None


def _judge_parts(parts: ThoughtAndAnswer, prompt: str) -> Iterator[tuple[str, bool]]:
    """Each way in which the two parts can be compared, and whether they disagree in it."""
    result = _result_of_answer(parts.answer)
    numbers = {_plain_number(one) for one in NUMBER.findall(parts.thought)}
    if result is not None and numbers:
        yield RESULT_KIND, result not in numbers and result not in parts.thought.replace(",", "")
    thought_text = " ".join(parts.thought.split())
    if len(thought_text) >= MIN_REPEATED:
        yield REPEATED_KIND, thought_text[:MAX_COMPARED] in " ".join(parts.answer.split())
    named = NAMED_ANSWER.findall(parts.thought)
    label = LABEL_IN_FRONT.match(parts.answer) or NAMED_ANSWER.search(parts.answer)
    if named and label is not None:
        yield OPTION_KIND, named[-1].casefold() != label[1].casefold()
    scripts = [main_script(text) for text in (parts.thought, parts.answer, prompt)]
    if None not in scripts[::2]:
        thought, answer, question = scripts
        yield SCRIPT_KIND, thought != question and answer in (None, question)


def _result_of_answer(answer: str) -> str | None:
    """The number that an answer gives as its result; None where it is not clear."""
    results = [next(filter(None, one), "") for one in RESULT.findall(answer)]
    if results:
        return _plain_number(results[-1])
    if len(answer) > MAX_SHORT_ANSWER:
        return None
    numbers = NUMBER.findall(answer)
    return _plain_number(numbers[-1]) if numbers else None


def _plain_number(text: str) -> str:
    """A number without commas and closing zeros: `1,200.50` and `1200.5` are one."""
    bare = text.replace(",", "")
    return bare.rstrip("0").rstrip(".") if "." in bare else bare


def main_script(text: str) -> str | None:
    """The script of most letters of a text; None where no script has most of them, or letters are few."""
    counts = Counter({name: len(pattern.findall(text)) for name, pattern in SCRIPTS})
    (name, count), *_ = counts.most_common(1)
    is_told = counts.total() >= MIN_LETTERS and count >= MAIN_SHARE * counts.total()
    return name if is_told else None
