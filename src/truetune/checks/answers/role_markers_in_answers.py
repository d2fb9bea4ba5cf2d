"""Role markers and control tokens stand in the answers.

## What it does

Looks in the text of each answer for the control tokens and role markers of the template (`<|im_start|>`, `### User:`).
It fires where more answers have one than at the best look before, unless chance makes such a change, or, in the second
half of a run, where surely more than 1 of 50 has one; an error where at the end of a run half of 8 or more do.

## Why it is bad

Users see them, and the model goes on to play the user: it writes the next question itself. The stop token is not
learned, it is another one than the server's, or markers stand in the contents of the data.

## Example

```yaml
looks:
  - {step: 0, markers: 0}
  - {step: 100, markers: 6}
```

## Use instead

```yaml
looks:
  - {step: 0, markers: 0}
  - {step: 100, markers: 0}
```

## Fix safety

There is no automatic fix: see that the stop token is supervised and that the server stops at it, and look for markers
inside contents (`truetune check`).

## References

- ollama/ollama#5319, sotopia-lab/sotopia-pi#17
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.answers.bad_answers import ENOUGH, cases, find_bad_answers
from truetune.checks.counted_answers import CountedAnswersRule
from truetune.checks.findings import Finding
from truetune.generation.answer_samples import Sample

TOLERATED = 0.02


class RoleMarkersInAnswers(CountedAnswersRule):
    code = "ANS007"
    severity = "error"
    since = "0.1.0"
    explained_by = ("temperature", "model", "stop")
    tolerated = TOLERATED
    called = "have role markers or control tokens in them"

    def bad(self, sample: Sample) -> bool | None:
        return bool(sample.scores.markers)

    def findings(self) -> Iterator[Finding]:
        found = find_bad_answers(self.subject, self.bad, TOLERATED)
        if found is None:
            return
        markers = Counter(
            marker for sample in found.samples for marker in dict.fromkeys(sample.scores.markers)
        )
        half = found.last.of >= ENOUGH and 2 * found.last.bad >= found.last.of
        yield self.finding(
            f"{found.last} answers have role markers or control tokens in them{found.before}",
            "see that the stop token is supervised and that generation stops at it; look for"
            " markers in the contents",
            severity="error" if self.subject.finished and half else "warning",
            evidence=[
                "markers: " + ", ".join(f"{text!r} in {n}" for text, n in markers.most_common(5)),
                *found.evidence,
            ],
            cases=cases(found.samples),
            count=found.last.bad,
            total=found.last.of,
            figure=found.figure("answers with role markers"),
        )
