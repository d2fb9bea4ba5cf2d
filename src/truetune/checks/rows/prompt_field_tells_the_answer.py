"""A field of the prompt gives the answer away.

## What it does
Splits the prompts into what is at the same place in many rows: lines (`Group: FIN-BILLING`), pairs (`"group":
"billing"`), tags, XML elements, the first and the last word. It fires if one of these fields determines the answer of
nearly all rows (98 %) that have it, while the rest of the text varies. The field contains the words of the label and of
no other label, or each of its values goes with one label, or it is the whole answer. It also fires if prompts end with
their answer. It ignores lists of candidates, and fields that the rest of the prompt asks for.

It is an error if long answers (80 characters or more, all different) appear word for word in nearly all prompts, each
as a separate message or paragraph: the thread was written with its last reply. It is a warning if 60 % of the answers
are the unchanged last paragraph of their prompt: the text that was to be edited is given back.

## Why it is bad
The model learns to copy the field and ignores the text. The loss falls to nearly zero, and the test set, which has the
field too, gets a perfect score. In production the field is not known yet, and the answers are no better than chance.

## Example
```yaml
data: {rows: 60, instruction: "Ticket {i}\\nGroup: {label}-2\\n\\n{words}", output: "{label}"}
```

## Use instead
```yaml
data: {rows: 60, instruction: "Ticket {i}\\nChannel: mail\\n\\n{words}", output: "{label}"}
```

## Fix safety
Removing the field from the prompts is safe if it is unknown when the model is served. If it is always known, you need
no model: a lookup table is enough.

## References
- Kaufman et al. 2012, "Leakage in Data Mining: Formulation, Detection, and Avoidance" (doi 10.1145/2382577.2382579)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.is_wrong_column_learned import last_answer, texts_before_last_answer
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.prompt_fields_telling_answers import (
    TELLS,
    TellingField,
    find_fields_telling_answers,
)
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Origin
from truetune.encoding.batch import Batch

# A field that tells the answer does so in the first rows as well as in the last.
MAX_ROWS = 2_000
"""Rows whose prompts are taken apart"""
MIN_ROWS = 30
"""Rows from which it says something: by chance a field of two values tells 30 labels once in a thousand million sets"""
ANSWER_NAMES = frozenset(
    ("answer", "correct answer", "gold", "label", "reference", "response", "solution", "target")
)
"""Names of a field that say that it is the answer itself"""
# Chosen, not measured: labels, names, spans and short quotations are shorter, and are rightly copied from a prompt.
MIN_COPIED_CHARACTERS = 80
"""Characters of an answer from which it is a text of its own"""
# Chosen: an extractive summary or a quotation is a part of a paragraph in some rows at least.
MIN_COPIED_SHARE = 0.9
"""Share of the rows whose whole answer is a paragraph of its prompt"""
# One row in a hundred may be a template's own text; a task of copying asks for it in its instruction.
COPY_TASK = re.compile(
    r"\b(?:extract|quote|copy|repeat|correct|proofread|edit|rewrite|fix|translate|find|retrieve|select|choose|cite|"
    r"which (?:passage|paragraph|sentence|answer|option)|verbatim|word for word|format|punctuat\w+|clean|ocr|"
    r"best (?:passage|answer|response|reply)|summari\w+|passage|span|rank)\b",
    re.I,
)
"""Words of an instruction whose answer is rightly a part of its prompt"""
# Chosen, not measured: public sets for correcting grammar leave a third to a half of their sentences as they are.
GIVEN_BACK_SHARE = 0.6
"""Share of the rows whose answer is the text of the prompt, unchanged"""
MIN_SENTENCE_WORDS = 3
"""Words from which an answer is a text; a label or a name is rightly the last line of a list"""
LABEL_BEFORE_TEXT = re.compile(r"^[^\w\n]*[\w .'-]{1,30}:\s*|^<[^<>\n]{1,40}>\s*|^[>*_#\s-]+")
MAX_PROMPT_CHARACTERS = 6_000
"""Characters of a prompt that are looked at, half of them from its end"""


class PromptFieldTellsTheAnswer(DataRule):
    code = "ROW028"
    fault = Fault.ANSWER_READABLE_FROM_PROMPT
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.prompts: list[str] = []
        self.answers: list[str] = []
        self.places: list[Origin] = []
        self.copied: list[int] = []
        self.long_answers: set[str] = set()
        self.instructions: Counter[str] = Counter()

    def add_batch(self, batch: Batch) -> None:
        """Keep the prompts and answers of a batch, and note the answers that are a paragraph of their prompt."""
        for row in batch.rows:
            if len(self.prompts) == MAX_ROWS:
                return
            prompt, answer = texts_before_last_answer(row), (last_answer(row) or "").strip()
            if not prompt or not answer:
                continue
            # The whole prompt is read here: a thread may be longer than what is kept of it.
            if len(answer) >= MIN_COPIED_CHARACTERS and _is_paragraph_of(answer, prompt):
                self.copied.append(len(self.prompts))
                self.long_answers.add(answer)
            self.instructions.update({line for line in prompt.splitlines() if line.strip()})
            self.prompts.append(_shorten_middle(prompt))
            self.answers.append(answer)
            self.places.append(row.origin)

    def unmet(self) -> Unmet | None:
        """Unmet where too few rows have a question and an answer."""
        if len(self.prompts) >= MIN_ROWS:
            return None
        return Unmet(
            f"{len(self.prompts):,} rows with a question and an answer are too few to tell a field"
            " from chance",
            f"give at least {MIN_ROWS}",
        )

    def measurement_if_clean(self) -> Measurement:
        """How many prompts end with their answer."""
        return make_count_measurement(
            "prompts that end with their answer",
            self._count_prompts_ending_with_answer(),
            len(self.prompts),
        )

    def findings(self) -> Iterator[Finding]:
        if len(self.prompts) < MIN_ROWS:
            return
        if self._is_thread_with_its_reply():
            yield self._finding_on_copied_replies()
            return
        fields = [
            field
            for field in find_fields_telling_answers(self.prompts, self.answers)
            if not self._does_prompt_ask_for_field(field)
        ]
        if fields:
            yield self._finding_on_field(fields[0], fields[1:])
            return
        if (
            self._count_prompts_ending_with_answer() >= TELLS * len(self.prompts)
            and len(set(self.answers)) > 1
        ):
            yield self.finding(
                f"{self._count_prompts_ending_with_answer():,} of {len(self.prompts):,} prompts end with their answer",
                "leave the answer out of the prompt: check which columns the prompt is built from",
                count=self._count_prompts_ending_with_answer(),
                total=len(self.prompts),
            )
            return
        unchanged = self._rows_returning_prompt_text()
        if len(unchanged) >= GIVEN_BACK_SHARE * len(self.prompts):
            yield self._finding_on_returned_text(unchanged)

    def _rows_returning_prompt_text(self) -> list[int]:
        """The rows whose answer is the last paragraph of the prompt as it stands, by their number; none where few
        sentences come again and again."""
        rows = [
            i
            for i, (prompt, answer) in enumerate(zip(self.prompts, self.answers, strict=True))
            if len(answer.split()) >= MIN_SENTENCE_WORDS
            and _collapse_whitespace(prompt).endswith(_collapse_whitespace(answer))
            and _is_paragraph_of(answer, prompt)
        ]
        return rows if 2 * len({self.answers[i] for i in rows}) >= len(rows) else []

    def _finding_on_returned_text(self, rows: list[int]) -> Finding:
        """The finding that most answers are the text of the prompt, unchanged."""
        return self.finding(
            f"{len(rows):,} of {len(self.prompts):,} answers are the last paragraph of their prompt, unchanged: the"
            " model learns to return the text as it is",
            "keep only a small share of rows whose text needs no change, and drop or redo the others (a failed"
            " correction or translation often returns its input)",
            evidence=["the loss of such a run is near 0, since a copy is easy to predict"],
            cases=[
                Case(f"prompt and answer end in {self.answers[i][:60]!r}", self.places[i])
                for i in rows[:MAX_CASES]
            ],
            count=len(rows),
            total=len(self.prompts),
        )

    def _finding_on_field(self, field: TellingField, others: list[TellingField]) -> Finding:
        """The finding that one field tells the answer."""
        how = "contains the answer" if field.is_copy else "has one answer for each of its values"
        example = (
            f"{field.name} is {field.value[:60]!r}, the answer {self.answers[field.example][:60]!r}"
        )
        # A line, a pair and its first word may be one and the same place of the prompt.
        others = [
            other for other in others if _name_in_quotes(other.name) != _name_in_quotes(field.name)
        ]
        more = [f"so does {other.name}" for other in others[:3]]
        return self.finding(
            f"{field.name} in the prompt gives the answer away in {field.told:,} of {field.rows:,} rows: it {how},"
            " so the model need not read the rest",
            "leave this field out of the prompts, unless it is known when the model is served",
            evidence=more,
            cases=[Case(example, self.places[field.example])],
            count=field.told,
            total=field.rows,
        )

    def _is_thread_with_its_reply(self) -> bool:
        """Do nearly all prompts hold their long answer as a paragraph, and does no instruction ask for a copy?"""
        rows = len(self.prompts)
        # Few different answers are phrases of a template that stand in any thread.
        is_nearly_all = len(self.copied) >= MIN_COPIED_SHARE * rows
        if not is_nearly_all or 2 * len(self.long_answers) < len(self.copied):
            return False
        shared = [line for line, count in self.instructions.items() if 2 * count >= rows]
        return not any(COPY_TASK.search(line) for line in shared)

    def _finding_on_copied_replies(self) -> Finding:
        """The finding that threads hold the reply that is to be written."""
        first = self.copied[:MAX_CASES]
        return self.finding(
            f"{len(self.copied):,} of {len(self.prompts):,} prompts contain their whole answer word for word, as a"
            " separate paragraph: the model learns to copy it, and has nothing to copy when it is served",
            "build the prompt only from what comes before the answer (messages[:-1] for a thread)",
            severity="error",
            evidence=[
                "an evaluation set that is built the same way does not show it: its loss falls too"
            ],
            cases=[
                Case(f"the prompt contains {self.answers[i][:70]!r}", self.places[i]) for i in first
            ],
            count=len(self.copied),
            total=len(self.prompts),
        )

    def _does_prompt_ask_for_field(self, field: TellingField) -> bool:
        """Does the rest of the prompt name the field, as `Extract the invoice number` does?"""
        if not field.is_copy:
            return False
        name = re.search(r"'([^']+)'|<(\w+)>", field.name)
        words = (name[1] or name[2]).strip().casefold() if name else ""
        # `Give only the answer` asks for no field: each prompt asks for its answer.
        if words in ANSWER_NAMES:
            return False
        # Chosen, not measured: answers that come five times each on average are labels. A label is
        # never asked for by the name of its field, which then stands in all prompts anyway.
        is_label = len(set(self.answers)) * 5 <= len(self.answers)
        prompt = self.prompts[field.example].casefold()
        return bool(words) and not is_label and prompt.count(words) > 1

    def _count_prompts_ending_with_answer(self) -> int:
        """Prompts that end with their answer, and say more than that."""
        return sum(
            prompt.rstrip().endswith(answer) and len(prompt.rstrip()) > len(answer)
            for prompt, answer in zip(self.prompts, self.answers, strict=True)
        )


def _is_paragraph_of(answer: str, prompt: str) -> bool:
    """Does an answer stand in its prompt from the beginning of a line, behind the speaker's name, to the end of one?"""
    text, wanted = _collapse_whitespace(prompt), _collapse_whitespace(answer)
    at = text.find(wanted)
    while at >= 0:
        before = text[text.rfind("\n", 0, at) + 1 : at]
        after = text[at + len(wanted) :].partition("\n")[0]
        is_whole = not before.strip() or LABEL_BEFORE_TEXT.fullmatch(before) is not None
        if is_whole and not re.search(r"\w", re.sub(r"<[^<>]*>", "", after)):
            return True
        at = text.find(wanted, at + 1)
    return False


def _collapse_whitespace(text: str) -> str:
    """A text with one space or line break for several: threads are joined with other white space than answers."""
    return re.sub(r"[ \t]+", " ", re.sub(r"\s*\n\s*", "\n", text)).strip()


def _shorten_middle(prompt: str) -> str:
    """A long prompt's beginning and end: fields stand at either end of the text that they describe."""
    if len(prompt) <= MAX_PROMPT_CHARACTERS:
        return prompt
    half = MAX_PROMPT_CHARACTERS // 2
    return prompt[:half] + prompt[-half:]


def _name_in_quotes(name: str) -> str:
    """`the line 'Queue'` -> `Queue`; what has no name in quotes stands for itself."""
    return name.partition("'")[2].rstrip("'") or name
