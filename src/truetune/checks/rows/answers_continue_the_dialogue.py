"""Answers that continue with the turns of both sides: a whole dialogue in one answer.

## What it does
Searches the text of each answer for lines that begin with a label (`Customer:`, `**Agent:**`, `[User]`). Two labels
are speakers where both are words for sides of a talk, or where they take turns in three answers or more, in whole
sentences, with questions among them. Prompts that ask for a dialogue, a scene or an interview, or that hold labels
themselves, are left alone, and so are forms (`Name:`, `Date:`). A prompt that ends with a label (`Human: ...`, then
`Assistant:`) is a transcript, and its answer is one turn: labels of the same two sides in it begin further ones.

## Why it is bad
The model learns that its turn does not end with its answer: it continues, writes what the user would say next, and
answers that as well. No stop token helps, because each of these answers ends with one.

## Example
```yaml
data:
  - {prompt: "It is broken.", completion: "Please restart it.\\n\\nCustomer: I did.\\n\\nAgent: Then bring it here."}
  - {prompt: "It is gone.", completion: "I block it now.\\n\\nCustomer: What next?\\n\\nAgent: Come to the desk."}
  - {prompt: "Where is the desk?", completion: "On floor 2."}
```

## Use instead
```yaml
data:
  - {prompt: "It is broken.", completion: "Please restart it."}
  - {prompt: "It is gone.", completion: "I block it now."}
  - {prompt: "Where is the desk?", completion: "On floor 2."}
```

## Fix safety
Split the text at the labels into messages of user and assistant, each answer a turn of its own; or cut it at the first
label. No text is lost by the first. Transcripts are split at their last label, not at their first: the turns before it
belong into the prompt, of pairs above all, whose sides differ in the last answer.

## References
- sotopia-lab/sotopia-pi#17
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import (
    NO_ANSWERS,
    learned_answers_of_row,
    text_besides_answers,
)
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch
from truetune.generation.answers_continued_by_dialogue_turns import (
    SpeakerCounts,
    TurnsBehindAnswer,
    find_turns_behind_answer,
    most_frequent_speaker_labels_in_words,
)

MIN_ROWS = 2
"""One row may quote a talk"""
MANY = 0.1
"""Share of the rows from which it is an error"""
_SPLIT_AT_LABELS = (
    "split each of these answers at its labels into messages of user and assistant, or cut it at the first label, and"
    " train again"
)
_SPLIT_AT_LAST_LABEL = (
    "split each transcript at the last label of the answering side, not at the first: all turns before it belong into"
    " the prompt, and the answer is the last turn alone"
)


class AnswersContinueTheDialogue(DataRule):
    code = "ROW050"
    symptoms = ("garbage-output",)
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = 0
        self.counts = SpeakerCounts()
        self.found: list[TurnsBehindAnswer] = []
        self.cases: list[tuple[TurnsBehindAnswer, Case]] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the answers of a batch that continue with turns of two speakers."""
        for row in batch.rows:
            answers = list(learned_answers_of_row(row))
            self.rows += bool(answers)
            prompt = text_besides_answers(row)
            turns = next(
                (
                    one
                    for answer in answers
                    if (one := find_turns_behind_answer(prompt, answer.text))
                ),
                None,
            )
            if turns is None:
                continue
            self.counts.add(turns)
            self.found.append(turns)
            if len(self.cases) < 10 * MAX_CASES:
                text = f"the answer is followed by {turns.first_turn!r}"
                self.cases.append((turns, case_in_row(batch, row, text)))

    def unmet(self) -> Unmet | None:
        """Unmet without answers."""
        return None if self.rows else NO_ANSWERS

    def measurement_if_clean(self) -> Measurement:
        """That no answer continues with turns of two speakers."""
        return make_count_measurement(
            "answers that continue with turns of two speakers", 0, self.rows
        )

    def findings(self) -> Iterator[Finding]:
        found = [turns for turns in self.found if self.counts.are_labels_of_speakers(turns)]
        if len(found) < MIN_ROWS:
            return
        is_transcript = sum(turns.is_in_transcript for turns in found) * 2 > len(found)
        yield self.finding(
            f"{len(found):,} of {self.rows:,} training answers continue with the turns of both sides, as text:"
            f" {most_frequent_speaker_labels_in_words(found)}",
            _SPLIT_AT_LAST_LABEL if is_transcript else _SPLIT_AT_LABELS,
            severity="error" if len(found) >= MANY * self.rows else "warning",
            cases=[case for turns, case in self.cases if self.counts.are_labels_of_speakers(turns)][
                :MAX_CASES
            ],
            count=len(found),
            total=self.rows,
        )
