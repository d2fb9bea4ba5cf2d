"""The settings swap question and answer: the answer column is the prompt, the question column is the answer.

## What it does
Reads the column names in the settings (LLaMA-Factory's `columns`, Axolotl's `field_instruction` and `field_output`,
`--map`). It fires if a column named like an answer (`answer`, `response`, `output`) is mapped to the prompt, and one
named like a question (`question`, `instruction`, `prompt`) to the answer. It also counts how many of the trained texts
end in a question mark: from half of them it is an error, otherwise a warning.

## Why it is bad
The model learns to write the question that fits an answer. The loss falls as usual, and whoever asks gets a question
back.

## Example
```yaml
spec: {map: {instruction: answer, output: question}}
data:
  - {question: "Is it open?", answer: It is open.}
  - {question: "Until when?", answer: Until four.}
```

## Use instead
```yaml
spec: {map: {instruction: question, output: answer}}
data:
  - {question: "Is it open?", answer: It is open.}
  - {question: "Until when?", answer: Until four.}
```

## Fix safety
There is no automatic fix: writing questions may be the task.

## References
- hiyouga/LLaMA-Factory: data/README.md, `columns`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.checks.base_of_rules_on_answer_texts import NO_ANSWERS, learned_answers_of_row
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch

OF_PROMPT = ("prompt", "instruction", "question")
OF_ANSWER = ("answer", "output", "completion", "response")
"""How a map calls the two sides"""
QUESTION_NAMES = frozenset(
    (
        "question", "questions", "query", "prompt", "instruction", "problem", "user", "ask", "user_message",
        "frage", "pregunta", "pergunta", "domanda", "vraag", "вопрос", "问题", "質問",
    )
)  # fmt: skip
ANSWER_NAMES = frozenset(
    (
        "answer", "answers", "response", "output", "completion", "reply", "solution", "assistant", "bot",
        "assistant_message", "chosen",
        "antwort", "respuesta", "réponse", "reponse", "resposta", "risposta", "antwoord", "ответ", "回答", "答案",
    )
)  # fmt: skip
QUESTION_MARKS = ("?", "？", "؟")


class SettingsExchangePromptAndAnswer(DataRule):
    code = "ROW063"
    fault = Fault.ANOTHER_COLUMN_TRAINED_AS_ANSWER
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.prompt = _column_mapped_to_side(setup.spec.map, OF_PROMPT)
        self.answer = _column_mapped_to_side(setup.spec.map, OF_ANSWER)
        self.rows = self.questions = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the learned texts of a batch that end as questions."""
        for row in batch.rows:
            texts = [one.text.strip() for one in learned_answers_of_row(row)]
            if not texts:
                continue
            self.rows += 1
            self.questions += texts[-1].endswith(QUESTION_MARKS)
            if len(self.cases) < MAX_CASES:
                self.cases.append(
                    case_in_row(batch, row, f"the trained text begins with {texts[-1][:60]!r}")
                )

    def unmet(self) -> Unmet | None:
        """Unmet where no settings name the columns of prompt and answer, or there are no answers."""
        if not self.prompt or not self.answer:
            return Unmet(
                "it is about settings that name the columns of prompt and answer, and none does"
            )
        return None if self.rows else NO_ANSWERS

    def measurement_if_clean(self) -> Measurement:
        """How many learned texts end as questions."""
        return make_count_measurement(
            "learned texts that end as questions", self.questions, self.rows
        )

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        if not (
            _is_named_as(self.prompt, ANSWER_NAMES) and _is_named_as(self.answer, QUESTION_NAMES)
        ):
            return
        yield self.finding(
            f"the settings take the column {self.prompt!r} as the prompt and {self.answer!r} as the answer: the"
            f" model learns to write questions ({self.questions:,} of {self.rows:,} trained texts end in a question"
            " mark)",
            f"swap the two: {self.answer!r} is the prompt and {self.prompt!r} the answer (LLaMA-Factory: columns in"
            " dataset_info.json; Axolotl: field_instruction and field_output), delete the prepared data, and train"
            " again",
            severity="error" if 2 * self.questions >= self.rows else "warning",
            cases=self.cases,
            count=self.rows,
            total=self.rows,
        )


def _column_mapped_to_side(names: Mapping[str, str], sides: tuple[str, ...]) -> str:
    """The column that a map gives one side; empty where it gives none."""
    return next((names[side] for side in sides if side in names), "")


def _is_named_as(column: str, names: frozenset[str]) -> bool:
    """Is a column named so, also with the name as its last word: `model_answer`?"""
    plain = column.strip().casefold()
    return plain in names or plain.replace("-", "_").rpartition("_")[2] in names
