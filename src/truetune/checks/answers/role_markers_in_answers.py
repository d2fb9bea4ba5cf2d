"""Answers contain role markers or control tokens.

## What it does
Looks in each answer for the control tokens and role markers of the template (`<|im_start|>`, `### User:`). It fires if
there are significantly more than in the best earlier sampling pass, or, in the second half of a run, if significantly
more than 2 % of the answers have one. It is an error if half of 8 or more have one at the end of a run, otherwise a
warning.

## Why it is bad
Users see them, and the model continues as the user: it writes the next question itself. The stop token is not learned,
it differs from the server's, or the contents of the data contain markers.

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
There is no automatic fix: check that the stop token has a label (`truetune run -- COMMAND`) and that the server stops
at it, and look for markers inside contents (`truetune check DATA`).

## References

- ollama/ollama#5319, sotopia-lab/sotopia-pi#17
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from truetune.checks.answers.count_bad_answers_per_pass import (
    MIN_ANSWERS,
    bad_answers_if_risen_or_too_many,
    cases_of_samples,
)
from truetune.checks.base_of_rules_on_bad_answer_shares import BadAnswerShareRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.generation.answer_samples import Sample
from truetune.generation.answers_continued_by_dialogue_turns import (
    find_continued_dialogues,
    most_frequent_speaker_labels_in_words,
)

# Chosen, not measured: an answer on chat formats may quote a marker. At half, one of 100 would do; at double, a stop
# that fails now and then would pass.
TOLERATED = 0.02
SHOWN_MARKERS = 5


class RoleMarkersInAnswers(BadAnswerShareRule):
    code = "ANS007"
    fault = Fault.ANSWERS_CONTAIN_FURTHER_TURNS
    symptoms = ("garbage-output",)
    severity = "error"
    since = "0.1.0"
    explained_by = ("temperature", "model", "stop")
    tolerated = TOLERATED
    called = "contain role markers or control tokens"

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Does the answer hold a role marker or a control token?"""
        return bool(sample.scores.markers)

    def findings(self) -> Iterator[Finding]:
        bad_answers = bad_answers_if_risen_or_too_many(self.subject, self.is_bad_answer, TOLERATED)
        if bad_answers is None:
            return
        # A marker counts once for each answer: one that loops would outweigh all others.
        markers = Counter(
            marker
            for sample in bad_answers.samples
            for marker in dict.fromkeys(sample.scores.markers)
        )
        half = (
            bad_answers.count_in_last_pass.of >= MIN_ANSWERS
            and 2 * bad_answers.count_in_last_pass.bad >= bad_answers.count_in_last_pass.of
        )
        yield self.finding(
            f"{bad_answers.count_in_last_pass} answers contain role markers or control"
            f" tokens{bad_answers.best_earlier_count_in_words}",
            _remedy_by_marker_position(bad_answers.samples),
            severity="error" if self.subject.finished and half else "warning",
            evidence=[
                "markers: "
                + ", ".join(f"{text!r} in {n}" for text, n in markers.most_common(SHOWN_MARKERS)),
                *bad_answers.evidence,
            ],
            cases=cases_of_samples(bad_answers.samples),
            count=bad_answers.count_in_last_pass.bad,
            total=bad_answers.count_in_last_pass.of,
            figure=bad_answers.figure("answers with role markers"),
        )


def _remedy_by_marker_position(samples: Sequence[Sample]) -> str:
    """What to do, by where the markers stand: behind the answer as turns in words, before it, or somewhere in it."""
    with_turns = find_continued_dialogues(
        [(sample.prompt.question, sample.answer.text) for sample in samples]
    )
    if 2 * len(with_turns) >= len(samples):
        speakers = most_frequent_speaker_labels_in_words(with_turns.values())
        return (
            f"look for {speakers} inside the training answers (`truetune check DATA`:"
            " answers-continue-the-dialogue), split them there into user and assistant turns, and train again;"
            " until then, cut answers at these labels (stop strings)"
        )
    headed = [sample for sample in samples if _begins_with_role_line(sample)]
    if 2 * len(headed) > len(samples):
        return (
            "these answers begin with the assistant header, which should end the prompt: call apply_chat_template"
            " with add_generation_prompt=True before generation (on a server: use chat.completions); training need"
            " not change"
        )
    # An answer that begins with a marker, and stops, has learned its stop token.
    opened = [sample for sample in samples if _begins_with_marker(sample)]
    if 2 * len(opened) > len(samples) and not any(_is_end_unknown(sample) for sample in opened):
        return (
            "the answers begin with a marker but stop by themselves, so stopping was learned: check whether the"
            " answers of the training rows contain the prompt or the header (truetune check ROWS), and whether the"
            " prompt ends with the assistant header (add_generation_prompt=True)"
        )
    return (
        "check that the stop token has a label (truetune run -- COMMAND shows it) and that generation stops at it"
        " (eos_token_id), and look for markers in the contents of the training rows (truetune check DATA)"
    )


def _begins_with_marker(sample: Sample) -> bool:
    """Does a marker stand at the very beginning of an answer?"""
    head = sample.answer.text.lstrip(" \t\n#*")
    return any(head.startswith(marker.lstrip("#* ")) for marker in sample.scores.markers)


def _begins_with_role_line(sample: Sample) -> bool:
    """Is the first line of an answer the bare name of a role, as a template writes it?"""
    first, _, rest = sample.answer.text.lstrip().partition("\n")
    return bool(rest.strip()) and first.strip() in sample.scores.markers and first.strip().isalpha()


def _is_end_unknown(sample: Sample) -> bool:
    """Is it unknown whether an answer ended by itself?"""
    return not (sample.scores.end_known and sample.scores.stopped)
