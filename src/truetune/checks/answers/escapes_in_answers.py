"""Escapes stand in the answers in place of the characters that they mean.

## What it does

Looks in each answer, outside of code, JSON, formulas and addresses, for line breaks that are a backslash and an `n`,
HTML entities (`&amp;`), `\\u00e9`, `%20` and the codes of mails (`=C3=A9`). It fires where more answers have some than
at the best look before, unless chance makes such a change, or, in the second half of a run, where surely more than 1 of
50 has; an error where at the end of a run half of 8 or more do. An answer to a question about escapes is none.

## Why it is bad

Users see one line full of backslashes. The model was trained on rows that were escaped once more than they were
unescaped: on the way through a CSV file, a second `json.dumps`, a web page or a mail.

## Example

```yaml
looks:
  - {step: 0, escapes: 0}
  - {step: 100, escapes: 6}
```

## Use instead

```yaml
looks:
  - {step: 0, escapes: 0}
  - {step: 100, escapes: 0}
```

## Fix safety

There is no automatic fix: unescape the rows before they are encoded (`text.replace("\\\\n", "\\n")`,
`html.unescape`) and train again. Where the rows are sound (`truetune check`), the program that wrote the answers down
has escaped them.

## References

- huggingface/transformers#12971, EricFillion/happy-transformer#283
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.answers.bad_answers import ENOUGH, cases, find_bad_answers
from truetune.checks.counted_answers import CountedAnswersRule
from truetune.checks.findings import Finding
from truetune.generation.answer_samples import Sample
from truetune.generation.escaped_characters import find_escapes

TOLERATED = 0.02
"""As of control tokens: an answer may speak of escapes without saying so"""


class EscapesInAnswers(CountedAnswersRule):
    code = "ANS018"
    severity = "error"
    tolerated = TOLERATED
    called = "have escapes in place of characters"

    def bad(self, sample: Sample) -> bool | None:
        return bool(sample.scores.escapes)

    def findings(self) -> Iterator[Finding]:
        found = find_bad_answers(self.subject, self.bad, TOLERATED)
        if found is None:
            return
        escapes = Counter(escape for sample in found.samples for escape in sample.scores.escapes)
        half = found.last.of >= ENOUGH and 2 * found.last.bad >= found.last.of
        named = ", ".join(f"{text} in {count}" for text, count in escapes.most_common(5))
        yield self.finding(
            f"{found.last} answers have escapes in place of characters ({named}){found.before}",
            "unescape the training rows (a CSV or JSON step wrote them twice); where these are"
            " sound, look at what wrote the answers down",
            severity="error" if self.subject.finished and half else "warning",
            evidence=[*_of_references(found.samples), *found.evidence],
            cases=cases(found.samples),
            count=found.last.bad,
            total=found.last.of,
            figure=found.figure("answers with escapes"),
        )


def _of_references(samples: tuple[Sample, ...]) -> Iterator[str]:
    """Do the references have escapes too?"""
    known = [sample.prompt.reference for sample in samples if sample.prompt.reference.strip()]
    if known:
        escaped = sum(bool(find_escapes(reference)) for reference in known)
        yield f"{escaped} of their {len(known)} references have some too"
