"""All or nearly all answers in the batches are the same text.

## What it does
Reads the texts under the labels of the first batches, one per document. It fires if documents with different prompts
all have the same text, from 4 documents on, or nearly all (95 % of 20 or more), or one of a handful. If a column of the
given rows contains far more than the answers but has no label, the finding names it beside the column that is in the
loss: `--canary` proves both, else the given rows are compared with the batches. It is an error from 8 documents on or
with such a column, else a warning. Answers that are a few short labels are a classification set: that is info, and only
with such a column.

## Why it is bad
The loss falls to almost nothing within a few steps, and the model has learned to answer everything with one sentence.
Usually the loader uses the wrong column: a state, a status or a category instead of the text.

## Example

```python
given = datasets.Dataset.from_list([
    {"problem": f"How many {fruit} are in the box?", "state": "CONCLUDE",
     "training_text": f"We count them twice: there are {i + 3} {fruit} in it."} for i, fruit in enumerate(FRUITS)])
asked = [{"messages": [{"role": "user", "content": row["problem"]},
                       {"role": "assistant", "content": row["state"]}]} for row in given]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(asked),
                           processing_class=tokenizer)
```

## Use instead

```python
given = datasets.Dataset.from_list([
    {"problem": f"How many {fruit} are in the box?", "state": "CONCLUDE",
     "training_text": f"We count them twice: there are {i + 3} {fruit} in it."} for i, fruit in enumerate(FRUITS)])
asked = [{"messages": [{"role": "user", "content": row["problem"]},
                       {"role": "assistant", "content": row["training_text"]}]} for row in given]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(asked),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: only you know which column is the answer. With another column, the loss is higher at first.

## References

- hiyouga/LLaMA-Factory#7592, huggingface/open-r1#585
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from truetune.checks.answer_diversity import AnswerDiversity
from truetune.checks.batch.evidence.answer_spans import lines_with_unshifted_labels
from truetune.checks.batch.evidence.learned_texts_of_documents import (
    MIN_DOCUMENTS,
    LearnedDocument,
    are_row_answers_alike,
    describe_learned_answers,
    documents_in_line,
    measure_answer_diversity,
)
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import explain_missing_labels
from truetune.checks.batch.evidence.unsupervised_columns import (
    ColumnsBesideAnswers,
    find_columns_beside_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.errors import format_name_list
from truetune.settings.run_spec import Severity

# Audits see a few batches: with 8 for a warning most of them would say nothing, with 2 each binary
# task would warn.
WARNING_DOCUMENTS = 4
"""Documents; of two classes drawn alike, 4 are of one class in one draw of 8"""
ERROR_DOCUMENTS = 8
"""Documents from which it is an error: one draw of 128"""
SHOWN_CHARACTERS = 60


class SupervisedAnswersAllAlike(BatchRule):
    code = "BAT018"
    fault = Fault.ONE_ANSWER_FOR_ALL_QUESTIONS
    symptoms = ("nothing-is-learned",)
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        spread = self._answer_diversity
        is_one = spread.commonest_share == 1.0
        if not self._are_documents_enough(is_one) or (spread.kind == "varied" and not is_one):
            return
        beside = find_columns_beside_answers(self.subject)
        if is_one or spread.kind == "alike" or are_row_answers_alike(beside.answers, spread):
            is_certain = len(self._learned_documents) >= ERROR_DOCUMENTS or bool(beside.untaught)
            yield self._finding_on_alike_answers(
                spread, beside, "error" if is_certain else "warning"
            )
        # Answers of a few texts may be the classes of a classifier: only a column that holds more
        # speaks against it.
        elif beside.untaught:
            yield self._finding_on_alike_answers(
                spread, beside, "info" if spread.kind == "labels" else "warning"
            )

    def _are_documents_enough(self, is_one: bool) -> bool:
        """Are there documents enough, with prompts enough? Answers that are not all one text take more."""
        documents = len(self._learned_documents)
        if not is_one and documents < MIN_DOCUMENTS:
            return False
        # One prompt again and again has one answer by right.
        contexts = {document.context for document in self._learned_documents}
        return documents >= WARNING_DOCUMENTS and len(contexts) >= WARNING_DOCUMENTS

    def _finding_on_alike_answers(
        self, spread: AnswerDiversity, beside: ColumnsBesideAnswers, severity: Severity
    ) -> Finding:
        """The answers in the loss are alike.

        Args:
            spread: how different they are.
            beside: the columns of their rows, and which of them reach no label.
            severity: of the finding.
        """
        message, remedy = self._message_and_remedy(spread, beside)
        common = {answer for answer, _ in spread.common}
        return self.finding(
            message,
            remedy,
            severity=severity,
            evidence=[
                (
                    f"the answers contain {spread.entropy:.2f} bits per row: the loss can fall to that without"
                    " reading a prompt"
                ),
                *(column.as_evidence_line for column in beside.untaught),
            ],
            cases=[
                Case(
                    f"{document.sample.place}: the labels are {document.answer[:SHOWN_CHARACTERS]!r}"
                )
                for document in self._learned_documents
                if document.answer in common
            ][:MAX_CASES],
            count=sum(rows for _, rows in spread.common),
            total=spread.total,
        )

    def _message_and_remedy(
        self, spread: AnswerDiversity, beside: ColumnsBesideAnswers
    ) -> tuple[str, str]:
        """(what is wrong, what to do): train a column that is known, or find it out with the
        canary.
        """
        message, remedy = (
            describe_learned_answers(spread),
            "train on the column with the answers (map it in the formatting function or the data settings)",
        )
        untaught = [column.name for column in beside.untaught]
        if untaught:
            learned = ""
            if beside.learned:
                learned = f"the labels are on {format_name_list(beside.learned)}, and "
            message += f"; {learned}{format_name_list(untaught)}, which contains more, has no label"
            return message, f"map {untaught[0]} to the answer, if it contains the answers"
        if not (self.subject.facts.get("canary") or {}).get("fields"):
            remedy += "; truetune run --canary -- COMMAND shows which column is in the loss, and which has no label"
        return message, remedy

    def unmet(self) -> Unmet | None:
        lacking = super().unmet() or explain_missing_labels(
            self.subject, list(lines_with_unshifted_labels(self.subject))
        )
        if lacking is not None:
            return lacking
        if (
            self._answer_diversity.total >= WARNING_DOCUMENTS
            and self._answer_diversity.commonest_share < 1.0
        ):
            return None
        prompts = len({one.context for one in self._learned_documents})
        return Unmet(
            f"{prompts} prompts have an answer in the loss, and it takes {WARNING_DOCUMENTS}",
            "audit more (--batches)",
        )

    def measurement_if_clean(self) -> Measurement:
        """How many different texts are among the answers in the loss."""
        different = len({one.answer for one in self._learned_documents})
        return make_count_measurement(
            "different texts among the answers in the loss", different, len(self._learned_documents)
        )

    @cached_property
    def _answer_diversity(self) -> AnswerDiversity:
        """How different the learned answers are."""
        return measure_answer_diversity(one.answer for one in self._learned_documents)

    @cached_property
    def _learned_documents(self) -> list[LearnedDocument]:
        """Documents with text in the loss."""
        return [
            one
            for sample in lines_with_unshifted_labels(self.subject)
            for one in documents_in_line(sample)
            if one.answer
        ]
