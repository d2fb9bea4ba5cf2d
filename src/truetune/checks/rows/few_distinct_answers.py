"""Nearly all rows have the same answer, or one of a handful.

## What it does
Counts the distinct answers. It fires if nearly all rows (95 %) have the same answer, if a handful of longer texts are
the answers, or if most rows have one text (50 %; 80 % if it is short). Their entropy is the information in the answers,
in bits per row. If another column contains far more information and none of it is trained on, the finding names that
column.

Answers that are a few short labels with several rows each are a classification set: an info with their shares. It is a
warning if the prompts neither name these labels nor differ in their words, and another column contains sentences. If
questions list options that differ from row to row, it counts the positions of the right ones: a warning if one position
has most of them (60 %; 85 % of two options), an error from 80 %.

## Why it is bad
The loss falls to nearly zero within a few steps, and the model has learned to give one answer to everything. Usually
the wrong column was trained on: a state, a status or a category instead of the text.

## Example

```yaml
data: {rows: 60, instruction: "Problem {i}", output: CONCLUDE, training_text: "{words}"}
```

## Use instead

```yaml
data: {rows: 60, instruction: "Problem {i}", output: "{words}", state: CONCLUDE}
```

## Fix safety
There is no automatic fix: only you know which column is the answer. `--map output=COLUMN` sets it for `truetune check`;
change the column in your training settings or script too.

## References

- hiyouga/LLaMA-Factory#7592, huggingface/open-r1#585
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

from truetune.checks.answer_diversity import LABEL, AnswerCounter, AnswerDiversity
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.is_wrong_column_learned import AnswersBesideUnreadColumns, last_answer
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import pair_texts
from truetune.checks.position_of_answered_option import (
    PlaceOfRightOptions,
    position_of_answered_option,
    position_overused_by_right_options,
)
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

# Of 20 rows with two classes at even odds, 19 or 20 are of one class in one
# draw of 25,000; of ten rows, 9 or 10 are in one of 47.
MIN_ROWS = 20
"""Rows from which it says something"""
# Answers that agree so far are alike for the eye as well. Whole answers as keys would hold the data
# in memory.
KEY_CHARACTERS = 200
"""Characters of an answer that are kept; of the rest a number tells it from others"""
MAX_KEPT_CASES = 1_000
"""Answers whose first row is kept"""
# At 0.8 usual classifications (spam, moderation) would warn; at 0.95 the loss of always saying the
# label is 0.2 nats.
ONE_SIDED_SHARE = 0.9
"""Share of one label from which its rows drown the others: the loss of always saying it is below 0.33 nats an answer"""
# Chosen on SQuAD 2.0, a third of whose questions have no answer on purpose: a note there, a warning above it.
FREQUENT, TOO_FREQUENT = 0.3, 0.4
"""Shares of one sentence among answers that differ otherwise: a model gives it where it is unsure"""
NEXT_SHARE = 0.25
"""Rows of the second answer for each of the first, above which several answers recur, as classes do"""
MIN_WORDS, MIN_CHARACTERS = 3, 8
"""Words of a sentence; characters of one in a script that parts no words"""
# Chosen, not measured: below it the other places are still taught.
PLACE_ERROR_SHARE = 0.8
"""Share of one place among the right options from which it is an error"""
SHOWN_CHARACTERS = 60
"""Characters of an answer that a message shows"""


class FewDistinctAnswers(DataRule):
    code = "ROW016"
    fault = Fault.ONE_ANSWER_FOR_ALL_QUESTIONS
    severity = "error"
    needs_tokenizer = False
    judges_without_evaluation = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.answers = AnswerCounter()
        self.sampled = AnswersBesideUnreadColumns()
        self.evaluated = AnswerCounter()
        self.rejected = AnswerCounter()
        """Answers of the other side, of pairs"""
        self.first: dict[str, Case] = {}
        """The first row of each answer"""

    def evaluation(self, rows: Iterable[Conversation]) -> None:
        """Count the answers of the evaluation rows."""
        for row in rows:
            answer = (last_answer(row) or "").strip()
            if answer:
                self.evaluated.add(answer[:KEY_CHARACTERS])

    def add_batch(self, batch: Batch) -> None:
        """Count the answers of a batch."""
        for row in batch.rows:
            answer = last_answer(row)
            if answer is None or not answer.strip():
                continue
            bare = answer.strip()
            key = _counting_key_of_answer(bare)
            self.answers.add(key)
            if row.rejected is not None:
                self.rejected.add(_counting_key_of_answer(pair_texts(row).rejected.strip()))
            if key not in self.first and len(self.first) < MAX_KEPT_CASES:
                self.first[key] = case_in_row(
                    batch, row, f"the answer is {bare[:SHOWN_CHARACTERS]!r}"
                )
            self.sampled.add(row, bare)

    def unmet(self) -> Unmet | None:
        """Unmet where too few rows have an answer."""
        if self.answers.total >= MIN_ROWS:
            return None
        rows = f"{self.answers.total:,} rows with an answer"
        return Unmet(
            f"{rows} are too few to tell a label from a wrong column", f"give at least {MIN_ROWS}"
        )

    def measurement_if_clean(self) -> Measurement:
        """How many rows have the commonest answer, and how many bits the answers hold."""
        spread = self.answers.diversity()
        more = f"; the answers contain {spread.entropy:.1f} bits per row"
        return make_count_measurement(
            "rows with the commonest answer",
            spread.common[0][1] if spread.common else 0,
            spread.total,
            more,
        )

    def findings(self) -> Iterator[Finding]:
        spread = self.answers.diversity()
        if spread.total < MIN_ROWS:
            return
        place = position_overused_by_right_options(self.sampled.prompts, self.sampled.answers)
        if place is not None and spread.kind != "alike":
            yield self._finding_on_position_of_right_options(place)
            return
        if spread.kind == "varied":
            if _is_one_sentence_frequent(spread):
                yield self._finding_on_frequent_sentence(spread)
            return
        column, bits = self.sampled.unread_column_with_more_than_answers()
        labels = [answer for answer, _ in spread.common]
        # Few answers may be the classes of a classifier. Beside a column of prose they are so only
        # where the prompts name them, or their words tell which one it is.
        if spread.kind == "labels" and (
            not column or self.sampled.are_answers_class_labels(labels)
        ):
            yield self._finding_on_labels(spread)
        else:
            yield self._finding_on_likely_wrong_answer_column(spread, column, bits)

    def _finding_on_likely_wrong_answer_column(
        self, spread: AnswerDiversity, column: str, bits: float
    ) -> Finding:
        """The answers look as if another column was meant.

        Args:
            spread: how different they are.
            column: an unused column that holds far more; empty where there is none.
            bits: what it holds, a row.
        """
        meant = spread.common if spread.kind in ("handful", "labels") else spread.common[:1]
        message = _describe_answers(spread)
        evidence = [f"the answers contain {spread.entropy:.2f} bits of information per row"]
        if column:
            message += f", and the column {column!r}, which contains more, is not trained on"
            evidence.append(
                f"the column {column!r} of the same rows contains about {bits:,.0f} bits per row; none of it is"
                " trained on"
            )
        remedy = _TRAIN_COLUMN if column else _REMEDY_OF_KIND.get(spread.kind, _TRAIN_COLUMN)
        if self._is_rejected_varied():
            message += "; the rejected answers differ"
            remedy = _READ_PAIRS
        place = position_of_answered_option(self.sampled.prompts, spread.common[0][0])
        if place and spread.kind == "alike":
            message += (
                f", the option that is {place}: the model learns the position, not the content"
            )
            remedy = _SHUFFLE_OPTIONS
            evidence += self._evidence_of_option_in_evaluation_rows(spread.common[0][0])
        return self.finding(
            message,
            remedy,
            severity="error" if spread.kind == "alike" else "warning",
            evidence=evidence,
            cases=[self.first[answer] for answer, _ in meant if answer in self.first][:MAX_CASES],
            count=sum(rows for _, rows in meant),
            total=spread.total,
        )

    def _finding_on_position_of_right_options(self, place: PlaceOfRightOptions) -> Finding:
        """The finding that most right options stand in one place."""
        return self.finding(
            f"{place.count:,} of {place.total:,} answers to questions with options name the option that is"
            f" {place.place} ({place.label}): the model learns the position, not the content",
            _SHUFFLE_OPTIONS,
            severity="error" if place.count >= PLACE_ERROR_SHARE * place.total else "warning",
            evidence=[
                f"if {place.option_count} options are shuffled, each position is right in about"
                f" {1 / place.option_count:.0%}"
            ],
            count=place.count,
            total=place.total,
        )

    def _is_rejected_varied(self) -> bool:
        """Do the rows have another side, whose answers differ from row to row?"""
        spread = self.rejected.diversity()
        return spread.total >= MIN_ROWS and spread.kind == "varied"

    def _evidence_of_option_in_evaluation_rows(self, answer: str) -> list[str]:
        """What the evaluation rows say of an option that is always the answer."""
        spread = self.evaluated.diversity()
        rows = dict(spread.common).get(answer, 0)
        if not rows:
            return []
        return [
            f"{rows:,} of {spread.total:,} evaluation rows have this answer too: a model that ignores the question"
            " gets them right, so the score proves nothing"
        ]

    def _finding_on_frequent_sentence(self, spread: AnswerDiversity) -> Finding:
        """The finding that many answers are one sentence, among answers that differ."""
        answer, rows = spread.common[0]
        # A short one may be the negative of an extraction: "No entity was found."
        is_much = spread.commonest_share >= TOO_FREQUENT and len(answer) > LABEL
        return self.finding(
            f"{_describe_answers(spread)}, while the other answers differ: the tuned model will give it to questions"
            " that it could answer",
            _THIN_OUT,
            severity="warning" if is_much else "info",
            evidence=[
                f"{spread.commonest_share:.0%} of the answers; no other answer is even a quarter as frequent"
            ],
            cases=[self.first[answer]] if answer in self.first else (),
            count=rows,
            total=spread.total,
        )

    def _finding_on_labels(self, spread: AnswerDiversity) -> Finding:
        """A note, for such rows are meant where the answers are classes; a warning where one class is nearly all."""
        is_one_sided = spread.commonest_share >= ONE_SIDED_SHARE
        remedy = (
            "balance the classes: repeat rows of the rare ones, or drop some of the common one; and evaluate by the"
            " recall of each class, not by accuracy"
            if is_one_sided
            else _WANTED
        )
        most = f"; always giving the commonest one is right in {spread.commonest_share:.0%} of the rows"
        return self.finding(
            f"the answers are {len(spread.common)} labels: {_describe_shares(spread)}"
            + (most if is_one_sided else ""),
            remedy,
            severity="warning" if is_one_sided else "info",
            evidence=[
                f"{spread.entropy:.2f} bits of information per row; {spread.entropy_if_balanced:.2f} if all labels"
                " had as many rows"
            ],
            count=spread.total,
            total=spread.total,
        )


_READ_PAIRS = (
    "read ten pairs: if the few answers are the worse ones, the sides are swapped (check with --map chosen=rejected"
    " --map rejected=chosen, and correct the script that built the pairs); otherwise the pairs teach the model to"
    " give these few answers to everything"
)
_SHUFFLE_OPTIONS = (
    "shuffle the options of each row in the script that makes the rows, and set the answer to the new letter of the"
    " right one; do the same for the evaluation rows"
)
_WANTED = (
    "if these are the classes that you want, change nothing; otherwise train on another column (--map"
    " output=COLUMN)"
)
_THIN_OUT = (
    "drop most of the rows with this answer (a few percent are enough to teach it), and train again; if it is a"
    " default that was filled in, write the true answers"
)
_TRAIN_COLUMN = "train on the column that contains the answers (--map output=COLUMN)"
_REMEDY_OF_KIND = {"handful": _WANTED, "repeated": _THIN_OUT}
"""How different the answers are -> what to do, where no column holds more"""


def _counting_key_of_answer(answer: str) -> str:
    """The text by which an answer is counted; answers that only begin with one text (a greeting)
    are not alike.
    """
    if len(answer) <= KEY_CHARACTERS:
        return answer
    return f"{answer[:KEY_CHARACTERS]}{crc32(answer[KEY_CHARACTERS:].encode())}"


def _is_one_sentence_frequent(spread: AnswerDiversity) -> bool:
    """Is one sentence the answer of many rows, and no other answer of nearly as many?"""
    answer = spread.common[0][0]
    is_sentence = len(answer.split()) >= MIN_WORDS or (
        not answer.isascii() and len(answer) >= MIN_CHARACTERS
    )
    if spread.commonest_share < FREQUENT or not is_sentence:
        return False
    second = spread.common[1][1] if len(spread.common) > 1 else 0
    return second <= NEXT_SHARE * spread.common[0][1]


def _describe_answers(spread: AnswerDiversity) -> str:
    """How many rows have the same answer, or one of a handful."""
    if spread.kind in ("alike", "repeated", "varied"):
        rows = spread.common[0][1]
        return (
            f"{rows:,} of {spread.total:,} rows have the same answer:"
            f" {spread.common[0][0][:SHOWN_CHARACTERS]!r}"
        )
    rows = sum(rows for _, rows in spread.common)
    return (
        f"{rows:,} of {spread.total:,} rows have one of {len(spread.common)} answers:"
        f" {_describe_shares(spread)}"
    )


def _describe_shares(spread: AnswerDiversity) -> str:
    """`'yes' 61%, 'no' 39%`: the three commonest answers, and how many more there are"""
    shares = [
        f"{answer[:SHOWN_CHARACTERS]!r} {rows / spread.total:.0%}"
        for answer, rows in spread.common[:3]
    ]
    more = len(spread.common) - len(shares)
    return ", ".join(shares) + (f" and {more} more" if more > 0 else "")
