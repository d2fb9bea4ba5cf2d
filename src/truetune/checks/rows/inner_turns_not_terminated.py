"""Texts contain several turns of two speakers, and only the last answer has an end token.

## What it does
Reads rows that are one text each, with turns under labels at the beginning of lines (`User:` and `Assistant:`, `###
Human:` and `### Assistant:`; lists of `Q:` and `A:` may be documents). It counts those with two or more answers whose
only end token (`</s>`, `<|endoftext|>`, `<|im_end|>`, ...) is at the very end, so that the earlier answers end without
one.

## Why it is bad
With the loss on the whole text, the model sees far more answers that are followed by the next `User:` than answers that
are followed by the end. It answers, writes `User:`, and plays the user's part too.

## Example
```yaml
data:
  - {text: "User: Open?\\nAssistant: It is.\\nUser: Until when?\\nAssistant: Until six.</s>"}
  - {text: "User: Is it far?\\nAssistant: No.\\nUser: By bus?\\nAssistant: On foot.</s>"}
```

## Use instead
```yaml
data:
  - {text: "User: Open?\\nAssistant: It is.</s>\\nUser: Until when?\\nAssistant: Until six.</s>"}
  - {text: "User: Is it far?\\nAssistant: No.</s>\\nUser: By bus?\\nAssistant: On foot.</s>"}
```

## Fix safety
Putting the tokenizer's end token after each answer is safe. It is better to convert the rows to messages and to train
with the chat template, with the loss on the assistant's turns only.

## References
- huggingface/trl documentation, "Train on assistant messages only"
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch
from truetune.generation.answers_continued_by_dialogue_turns import ROLE_WORDS

LABEL = re.compile(
    r"^(?:#{1,4} ?|\*\*|\[)?(?P<name>[^\W\d_]\w{0,20})(?:\*\*|\])?[:：](?:\*\*)?", re.MULTILINE
)
END = re.compile(
    r"</s>|<\|endoftext\|>|<\|end_of_text\|>|<\|im_end\|>|<\|eot_id\|>|<eos>|<\|end\|>|<end_of_turn>"
)
QUESTION_WORDS = frozenset(
    [
        "q",
        "a",
        "question",
        "answer",
        "frage",
        "antwort",
        "pregunta",
        "respuesta",
        "domanda",
        "risposta",
        "pergunta",
        "resposta",
        "vraag",
        "antwoord",
        "вопрос",
        "ответ",
        "问",
        "答",
    ]
)
"""Labels of lists of questions, which documents and prompts with examples hold as a whole"""
SPEAKERS = ROLE_WORDS - QUESTION_WORDS
MAX_TEXT = 20_000
"""Characters of a text that is read as turns. Chosen by hand: longer ones are documents, in which a
label is a heading"""
MIN_LABELS = 4
"""Two questions with their answers"""
MIN_ROWS = 2
"""Rows of several turns, at least: a single one may be the subject of the data"""
# Chosen, not measured: below it, they are a slip among rows of another kind.
MIN_SHARE = 0.05
"""Of all texts"""


class InnerTurnsNotTerminated(DataRule):
    code = "ROW059"
    fault = Fault.TRAINING_ANSWERS_LACK_STOP_TOKEN
    symptoms = ("garbage-output", "never-stops")
    severity = "warning"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.texts = self.dialogues = self.faulty = 0
        self.ends: Counter[str] = Counter()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the texts of a batch that hold several turns and one end token, at the end."""
        for row in batch.rows:
            if row.is_chat or row.text is None:
                continue
            self.texts += 1
            text = row.text.rstrip()
            labels = _speaker_labels(text) if len(text) <= MAX_TEXT else []
            if not labels:
                continue
            self.dialogues += 1
            ends = [match[0] for match in END.finditer(text)]
            if len(ends) != 1 or not text.endswith(ends[0]):
                continue
            self.faulty += 1
            self.ends[ends[0]] += 1
            if len(self.cases) < MAX_CASES:
                shown = (
                    f"{len(labels) // 2} answers under {labels[1]!r}, and one {ends[0]} at the end"
                )
                self.cases.append(case_in_row(batch, row, shown))

    def unmet(self) -> Unmet | None:
        """Unmet without texts that hold the turns of two speakers."""
        if self.dialogues:
            return None
        return Unmet("it is about texts with the turns of two speakers, and no row is one")

    def measurement_if_clean(self) -> Measurement:
        """How many texts of several turns have one end token, at the end."""
        return make_count_measurement(
            "texts of several turns with one end token, at the end", self.faulty, self.dialogues
        )

    def findings(self) -> Iterator[Finding]:
        if self.faulty < max(MIN_ROWS, MIN_SHARE * self.texts):
            return
        end = self.ends.most_common(1)[0][0]
        yield self.finding(
            f"{self.faulty:,} of {self.texts:,} texts contain several turns but have {end} only after the last"
            " answer: the model learns that the user's next turn follows an answer, and writes it",
            f"put {end} after each answer; or convert the rows to messages and train with the loss on the"
            " assistant's turns (assistant_only_loss=True in TRL)",
            cases=self.cases,
            count=self.faulty,
            total=self.texts,
        )


def _speaker_labels(text: str) -> list[str]:
    """The labels of a talk between two sides that take turns, the asker first; empty where the text is none."""
    matches = [match for match in LABEL.finditer(text) if match["name"].casefold() in SPEAKERS]
    names = [match["name"].casefold() for match in matches]
    take_turns = all(one != other for one, other in pairwise(names))
    if len(names) < MIN_LABELS or len(set(names)) != 2 or not take_turns or len(names) % 2:
        return []
    return [match[0] for match in matches]
