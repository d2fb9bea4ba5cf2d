"""Answers are complete in the batch, but no stop token follows them.

## What it does
Checks what follows the last answer of each document in the first batches: padding, another document or the end of the
sequence, but no stop token. Answers that were cut off at the length limit do not count. It is an error if all
supervised answers lack a stop token, and a warning if some do. It is also a warning if all of them end with another
stop token than the template writes.

If the rows are not known, as with a data set that tokenizes its rows on the fly, the labels tell where answers are:
after prompts of different lengths that have no labels. It is an error if no label of the batches is a stop token,
unless the answers end in a text of their own (`### End`) or have few tokens (classes). Labels of encoder-decoders are
judged alike. Rows that are learned whole, as in continued pretraining, are not.

## Why it is bad
The model learns every word of its answers, but never that they end. It continues until the limit, often with a question
of its own. The loss is as low as ever.

## Example

```python
made = [{key: values[:-2] for key, values in row.items()} for row in encoded(rows)]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), made,
                           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: your code makes the rows. Append the token that ends a turn, with a label; the model then
learns one more token per answer.

## References

- huggingface/trl#1623, huggingface/transformers#22794
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from truetune.auditing.audit import Audit
from truetune.auditing.expected_tokens_without_rendering import find_answer_marker
from truetune.checks.batch.evidence.answer_spans import (
    Answer,
    answers_in_recognised_lines,
    length_limit_and_is_explicit,
    lines_of_known_rows,
    text_around,
)
from truetune.checks.batch.evidence.ends_of_labelled_stretches import (
    LearnedEnd,
    ends_learned_without_stop,
    ends_of_labelled_stretches,
)
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import (
    NO_ANSWER_LEARNED,
    explain_missing_answer,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.render.rendering import Source


class EosNotAppended(BatchRule):
    code = "BAT002"
    fault = Fault.TRAINING_ANSWERS_LACK_STOP_TOKEN
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    # An end that the mask hides would be taken for padding.
    moot_where = ("attention-mask-hides-text",)

    def findings(self) -> Iterator[Finding]:
        most, named = length_limit_and_is_explicit(self.subject)
        ends = self._last_answers
        open_ = [
            answer
            for answer in ends
            if answer.stop is None and not _is_cut_answer(answer, most, named)
        ]
        if open_:
            yield self._finding_on_missing_stops(open_, ends)
            return
        if not ends:
            yield from self._finding_by_labels_alone()
        other = _one_stop_of_answers_unlike_template(self.subject, ends)
        if other is not None:
            yield self.finding(
                f"the answers end with {_show_token_with_id(self.subject, other)}, but the chat template"
                " ends turns with another token",
                "end the answers as the template does: render them with tokenizer.apply_chat_template, or append its"
                " token to the text",
                severity="warning",
                evidence=[f"tokens that end a turn: {_stop_token_names(self.subject)}"],
                count=len(ends),
                total=len(ends),
            )

    def _finding_on_missing_stops(self, open_: list[Answer], ends: list[Answer]) -> Finding:
        """Answers without a stop token, of all last answers of documents."""
        return self.finding(
            f"{len(open_)} of {len(ends)} answers end without a stop token, although they are not cut off",
            "append the token that ends a turn to each answer, and give it a label: use the"
            " tokenizer's chat template, or append tokenizer.eos_token to the text",
            severity="error" if len(open_) == len(ends) else "warning",
            evidence=[f"tokens that end a turn: {_stop_token_names(self.subject)}"],
            cases=[
                Case(
                    f"{answer.sample.place}: the answer ends with"
                    f" {text_around(answer.sample, answer.end - 1)}"
                )
                for answer in open_[:MAX_CASES]
            ],
            count=len(open_),
            total=len(ends),
        )

    def _finding_by_labels_alone(self) -> Iterator[Finding]:
        """The finding on answers of rows that are not recognised, of which no label is a stop token."""
        ends = ends_learned_without_stop(self.subject)
        open_ = [end for end in ends if end.masked_stop is None]
        # Where a stop token without a label follows each of them, stop-token-never-supervised says it.
        if not open_:
            return
        yield self.finding(
            f"no label is a stop token: {len(ends)} answers end without one, although they are not cut off",
            "append tokenizer.eos_token_id to the ids and labels of each answer, where the rows are tokenized; cut rows"
            " before you append it",
            severity="error",
            evidence=[
                f"tokens that end a turn: {_stop_token_names(self.subject)}",
                "the rows are not known: answers are the stretches of labels after prompts that have none",
            ],
            cases=[
                Case(f"{end.place}: the labels end with {end.shown}") for end in open_[:MAX_CASES]
            ],
            count=len(ends),
            total=len(ends),
        )

    def unmet(self) -> Unmet | None:
        if self._ends_by_labels:
            return None
        lacking = super().unmet()
        if lacking is not None or self._last_answers:
            return lacking
        if answers_in_recognised_lines(self.subject):
            return NO_ANSWER_LEARNED
        return explain_missing_answer(self.subject, lines_of_known_rows(self.subject))

    def measurement_if_clean(self) -> Measurement:
        """How many supervised answers end in a stop token, and how many are cut before it."""
        if self._ends_by_labels:
            stops = self.subject.stops
            learned = sum(bool(stops & set(end.learned)) for end in self._ends_by_labels)
            return make_count_measurement(
                "stretches of labels with a stop token", learned, len(self._ends_by_labels)
            )
        ended = sum(answer.stop is not None for answer in self._last_answers)
        cut = len(self._last_answers) - ended
        more = f"; {cut:,} are cut off before it" if cut else ""
        return make_count_measurement(
            "supervised answers that end in a stop token", ended, len(self._last_answers), more
        )

    @cached_property
    def _ends_by_labels(self) -> list[LearnedEnd]:
        """The ends of answers by the labels alone, where no row is recognised."""
        return ends_of_labelled_stretches(self.subject)

    @cached_property
    def _last_answers(self) -> list[Answer]:
        """The last answer of each document, where it has labels."""
        return [
            answer
            for answer in answers_in_recognised_lines(self.subject)
            if answer.last and answer.supervised_token_mask.any()
        ]


def _is_cut_answer(answer: Answer, most: int | None, named: bool) -> bool:
    """Does the line end with the answer, at the limit or before the end of the row's own text?

    Args:
        answer: one without a stop token.
        most: the length at which rows are cut; None where it is not known.
        named: does a setting name it? Else it was guessed from lines of one length.
    """
    sample, own = answer.sample, answer.sample.documents == answer.document
    if own[answer.end :].any():
        return False
    field = int(sample.field[answer.end - 1])
    is_full = most is not None and int(own.sum()) >= most
    # A guessed limit is believed only where the row's text is not known: else it is seen whether
    # some is missing.
    return field in sample.cut or (is_full and (named or field < 0))


def _one_stop_of_answers_unlike_template(audit: Audit, ends: list[Answer]) -> int | None:
    """The one stop token of all answers, where the template that was used ends its turns with another.

    It was used where each line holds what the template writes before an answer, and where the answers are text of the
    rows up to their end: then the stop token behind them is the trainer's.
    """
    mark = audit.probes.terminator.token if audit.probes and audit.probes.terminator else None
    opening = find_answer_marker(audit.probes).decode("utf-8", "replace")
    used = {int(answer.sample.ids[answer.stop]) for answer in ends if answer.stop is not None}
    if mark is None or not opening or len(used) != 1 or mark.id in used:
        return None
    by_template = all(
        opening in answer.sample.text(0, answer.start)
        and answer.sample.source[answer.end - 1] == Source.ASSISTANT
        for answer in ends
    )
    return used.pop() if by_template else None


def _show_token_with_id(audit: Audit, id: int) -> str:
    """`'</s>' (2)`; the id alone where the tokenizer is not known"""
    token = audit.probes.tokenizer.backend.id_to_token(id) if audit.probes else None
    return f"{token!r} ({id})" if token else str(id)


def _stop_token_names(audit: Audit) -> str:
    """All tokens that end a turn."""
    return ", ".join(_show_token_with_id(audit, stop) for stop in sorted(audit.stops)) or "none"
