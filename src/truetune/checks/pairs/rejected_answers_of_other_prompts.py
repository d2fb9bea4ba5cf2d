"""Rejected answers belong to the prompts of other pairs.

## What it does
Compares each prompt with the rejected answers of all pairs by the rare words that they share, as
`answers-of-other-rows` does for the chosen side. It tries shifts from some row on, the reverse order, parts of several
processes, and single pairs of a prompt and a rejected answer that fit each other best. It fires if one order is beyond
chance (one in a million, counting all that are tried) and the rows' own rejected answers are no nearer to their prompts
than any other. Short refusals and general answers share no rare words, and are not judged.

## Why it is bad
The model can tell the sides apart by which answer is about the prompt. The accuracy is 1.0 after a few steps and the
margin grows, while the model does not learn what makes an answer good. It happens when two files of answers are
filtered separately and then zipped.

## Example
```yaml
data: {rows: 60, prompt: "What about {words}", chosen: "So {words}", rejected: "Maybe {words_before}"}
```

## Use instead
```yaml
data: {rows: 60, prompt: "What about {words}", chosen: "So {words}", rejected: "Maybe {words}"}
```

## Fix safety
There is no automatic fix: shifting the answers back repairs what one dropped row displaced, and displaces everything
else. Build the pairs again, and join both answers by the prompt or its id.

## References
- https://docs.python.org/3/library/functions.html#zip (pairs by position; `strict` compares lengths)
- Rafailov et al. 2023, "Direct Preference Optimization" (arXiv 2305.18290): both answers are to one prompt
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.find_answers_at_other_rows_by_row_chunks import DisplacedAnswersOfFile
from truetune.checks.find_answers_standing_at_other_rows import DisplacedAnswers
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import pair_texts
from truetune.checks.rule import PairRule, Setup
from truetune.encoding.batch import Batch


class RejectedAnswersOfOtherPrompts(PairRule):
    code = "PREF026"
    fault = Fault.ANSWERS_PAIRED_WITH_WRONG_QUESTIONS
    symptoms = ("dpo-without-effect", "odd-metrics")
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.file = DisplacedAnswersOfFile()

    def add_batch(self, batch: Batch) -> None:
        """Keep the prompts and the rejected answers of a batch's pairs, to be compared."""
        for row in batch.rows:
            if row.rejected is not None:
                self.pairs += 1
                texts = pair_texts(row)
                self.file.add(texts.prompt, texts.rejected, row.origin)

    def unmet(self) -> Unmet | None:
        """Also unmet where it can't be judged to which prompt a rejected answer belongs."""
        self.file.search_and_forget_kept_rows()
        return super().unmet() or self.file.why_not_judged("a rejected answer")

    def measurement_if_clean(self) -> Measurement:
        """For how many prompts the nearest rejected answer is their own."""
        return make_count_measurement(
            "prompts whose nearest rejected answer is their own, of those with one far nearer than all others",
            self.file.own_pairs,
            self.file.pairs,
        )

    def findings(self) -> Iterator[Finding]:
        self.file.search_and_forget_kept_rows()
        displaced = self.file.displaced
        if displaced is None:
            return
        count = len(displaced.rows)
        yield self.finding(
            f"from {self.file.cases[0].origin} on, {count:,} rejected answers belong to other prompts:"
            f" {_describe_where_answers_are(displaced)}",
            "build the pairs again, and join both answers by the prompt or its id; do not zip two lists that were"
            " filtered, sorted or shuffled separately",
            evidence=[displaced.evidence],
            cases=self.file.cases,
            count=count,
            total=self.file.compared,
        )


def _describe_where_answers_are(displaced: DisplacedAnswers) -> str:
    """Where the rejected answers of these prompts are."""
    if displaced.order:
        return f"the right ones are {displaced.order}"
    return "for each of these prompts, the rejected answer that fits far better than all others is in another row"
