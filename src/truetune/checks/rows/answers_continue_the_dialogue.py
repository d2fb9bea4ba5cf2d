"""One answer contains a whole dialogue: after the answer it continues with turns of both sides.

## What it does
Searches each answer for lines that begin with a label (`Customer:`, `**Agent:**`, `[User]`). Two labels are speakers if
both are words for the sides of a talk, or if they take turns in three answers or more, in whole sentences, with
questions among them. It ignores prompts that ask for a dialogue, a scene or an interview, prompts that contain labels
themselves, and forms (`Name:`, `Date:`). If a prompt ends with a label (`Human: ...`, then `Assistant:`), it is a
transcript and the answer should be one turn: further labels of these two sides in it begin new turns. It is an error
from 10 % of the rows, and a warning from 2 rows.

## Why it is bad
The model learns that its turn does not end with its answer. It continues, writes what the user would say next, and
answers that too. A stop token does not help, because each of these answers ends with one.

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
Split the text at the labels into user and assistant messages, each answer a separate turn; this loses no text. Or cut
the answer at the first label. Split transcripts at their last label, not at their first: the earlier turns belong in
the prompt. This matters most for preference pairs, whose sides differ in the last answer.

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
from truetune.checks.faults import Fault
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
    "split each of these answers at its labels into user and assistant messages, or cut it at the first label; then"
    " train again"
)
_SPLIT_AT_LAST_LABEL = (
    "split each transcript at the last label of the answering side, not at the first: all turns before it belong in"
    " the prompt, and the answer is only the last turn"
)


class AnswersContinueTheDialogue(DataRule):
    code = "ROW050"
    fault = Fault.ANSWERS_CONTAIN_FURTHER_TURNS
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
        dialogues = [turns for turns in self.found if self.counts.are_labels_of_speakers(turns)]
        if len(dialogues) < MIN_ROWS:
            return
        is_transcript = sum(turns.is_in_transcript for turns in dialogues) * 2 > len(dialogues)
        yield self.finding(
            f"{len(dialogues):,} of {self.rows:,} answers contain a whole dialogue, so the model learns to write the"
            f" user's next turn itself: {most_frequent_speaker_labels_in_words(dialogues)}",
            _SPLIT_AT_LAST_LABEL if is_transcript else _SPLIT_AT_LABELS,
            severity="error" if len(dialogues) >= MANY * self.rows else "warning",
            cases=[case for turns, case in self.cases if self.counts.are_labels_of_speakers(turns)][
                :MAX_CASES
            ],
            count=len(dialogues),
            total=self.rows,
        )
