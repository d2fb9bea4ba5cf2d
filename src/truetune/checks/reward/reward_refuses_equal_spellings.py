r"""A reward function refuses other spellings of the right answer.

## What it does
Scores the right answers in other spellings: bold, in dollar signs and `\text{}` of LaTeX, with thousands
separators, a unit, a full stop, in capitals. A spelling is refused where it scores nearer to a wrong answer than to
the right one. It is a note, for a strict form may be intended. It is a warning where the references themselves are in
both spellings, and where numbers with separators are read in part: the function refuses `12,450` and pays for
`7,12450`, so it takes one group of digits for the number. Prompts that ask for no commas are recognised. It is a
warning as well where a JSON object is refused for its spaces or the order of its keys, and where a sentence is paid
without its full stop and not with it.

## Why it is bad
Right answers get the reward of wrong ones. Where the references mix spellings, no policy can know which one a row
wants. A number that is read in part is wrong in each completion that writes it as people do.

## Example
```yaml
reward: |
  def correct(completions, answer, **kwargs):
      return [1.0 if text.strip() == gold else 0.0 for text, gold in zip(completions, answer)]
rows:
  - {prompt: "What is 1000 * 2?", answer: "2,000"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Use instead
```yaml
reward: |
  def correct(completions, answer, **kwargs):
      scores = []
      for text, gold in zip(completions, answer):
          for mark in (",", "{", "}", "$", "*", "\\text", "apples", ".0"):
              text, gold = text.replace(mark, ""), gold.replace(mark, "")
          scores.append(1.0 if text.strip(" .") == gold else 0.0)
      return scores
rows:
  - {prompt: "What is 1000 * 2?", answer: "2,000"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Fix safety
There is no automatic fix.

## References
- open-compass/opencompass#2648
- NVIDIA-NeMo/Gym#1844
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reward.cases_of_scored_completions import quote_completion
from truetune.checks.rule import RewardRule
from truetune.generation.reward_trial import BEFORE_A_COMMA, RewardTrial, SpellingScores

OTHERS = {"X with commas": "X without commas", "X without commas": "X with commas"}
"""Spellings that references which are compared as text can't both have"""

SPELLINGS_OF_OBJECTS = (
    "X with its keys in another order",
    "X over several lines",
    "X without spaces",
)
"""One and the same JSON object for each program that reads it"""
SENTENCE, SENTENCE_WITH_STOP, WITH_STOP = "The final answer is X", "The answer is X.", "X."
ONE_NOTATION = "bring answer and reference into one notation before they are compared, or ask for one in the prompt"
WITHOUT_SEPARATORS = (
    "take the separators of thousands out of the completion before the number is searched"
    ' (re.sub(r"(?<=\\d),(?=\\d{3})", "", text)), or let the pattern have them'
)


COMMA_ALONE = (
    r"let each number of the pattern begin and end with a digit, and escape its point:"
    r" -?\d(?:[\d,]*\d)?(?:\.\d+)?; [\d,]+ takes a comma alone for a number"
)


def _remedy_of_refused(refused: Sequence[SpellingScores], *, is_read_in_part: bool) -> str:
    """What to change for the spellings that are refused."""
    if is_read_in_part:
        return WITHOUT_SEPARATORS
    if any(one.name == BEFORE_A_COMMA for one in refused):
        return COMMA_ALONE
    return ONE_NOTATION


def _numbers_read_in_part(trial: RewardTrial) -> tuple[SpellingScores, ...]:
    """The numbers with commas of which the function takes one part; empty where it takes none so."""
    scores = trial.numbers_read_in_part
    return (scores,) if scores is not None and scores.paid else ()


def _sentences_with_a_full_stop(
    trial: RewardTrial, refused: Sequence[SpellingScores]
) -> list[SpellingScores]:
    """The spelling with a full stop, where it is refused at the end of a sentence, and a sentence without one is paid.

    Such a function searches texts for numbers, and takes the full stop for a part of the last one.
    """
    paid = {form.name for form in trial.forms if form.paid == form.rows}
    if SENTENCE not in paid or SENTENCE_WITH_STOP in paid:
        return []
    return [one for one in refused if one.name == WITH_STOP and not one.paid]


def _spellings_mixed_in_references(
    trial: RewardTrial, refused: Sequence[SpellingScores]
) -> list[SpellingScores]:
    """The refused spellings of which the references have both forms: no policy can know which one a row wants."""
    in_references = set(trial.mixed_spellings)
    return [one for one in refused if {one.name, OTHERS.get(one.name)} <= in_references]


def _surely_equal_spellings(
    trial: RewardTrial, refused: Sequence[SpellingScores]
) -> list[SpellingScores]:
    """The refused spellings that no reader takes for another answer."""
    return [
        *(one for one in refused if one.name in SPELLINGS_OF_OBJECTS),
        *(one for one in refused if one.name == BEFORE_A_COMMA),
        *_sentences_with_a_full_stop(trial, refused),
    ]


def _lines_on_refused(
    surely_equal: Sequence[SpellingScores], mixed: Sequence[SpellingScores]
) -> Iterator[str]:
    """One example of a spelling that is surely equal, and one of those that the references mix."""
    for one in surely_equal[:1]:
        yield f"row {one.row}: {quote_completion(one.example)} gets nothing, and models write that"
    for one in mixed[:1]:
        yield f"the references themselves have both: {one.name}, {OTHERS[one.name]}"


def _lines_on_numbers_read_in_part(read_in_part: Sequence[SpellingScores]) -> Iterator[str]:
    """An example of a number of which one part is paid."""
    for one in read_in_part:
        yield f"row {one.row}: {quote_completion(one.example)} is paid as the right answer"


def _lines_on_verifiers(trial: RewardTrial) -> Iterator[str]:
    """How many of the refused spellings a verifier of mathematics takes for right."""
    for comparison in trial.comparisons:
        of_kind = next((one for one in comparison.kinds if one.kind == "spelling"), None)
        if of_kind is not None and of_kind.verifier_alone:
            yield (
                f"{comparison.verifier} takes {of_kind.verifier_alone:,} of {of_kind.compared:,} completions with such"
                " spellings for right that the function refuses"
            )


def _case_of_spelling(one: SpellingScores) -> Case:
    """A spelling that is refused."""
    return Case(
        f"row {one.row}, {one.name.strip()}: {quote_completion(one.example)}; paid in {one.paid} of {one.rows} rows"
    )


class RewardRefusesEqualSpellings(RewardRule):
    code = "RWD013"
    fault = Fault.RIGHT_ANSWERS_GET_NO_REWARD
    severity = "warning"
    symptoms = ("reward-does-not-rise",)
    of_paid_answers = True

    def unmet(self) -> Unmet | None:
        """Unmet where no other spelling was tried."""
        unmet = super().unmet()
        if unmet is None and not self.subject.spellings:
            return Unmet("no other spelling of the answers is known")
        return unmet

    def measurement_if_clean(self) -> Measurement:
        """How many other spellings are refused."""
        count = len(self.subject.spellings)
        return make_count_measurement(
            "other spellings of the right answers that are refused", 0, count
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on spellings that are refused: a note where the references don't mix them."""
        trial = self.subject
        refused = [one for one in trial.spellings if one.paid < one.rows]
        if not refused:
            return
        mixed = _spellings_mixed_in_references(trial, refused)
        read_in_part = _numbers_read_in_part(trial)
        surely_equal = _surely_equal_spellings(trial, refused)
        names = ", ".join(one.name.strip() for one in refused)
        effect_on_numbers = (
            ", and takes one part of a number with commas for the whole" if read_in_part else ""
        )
        yield self.finding(
            f"{trial.name} refuses {len(refused)} of {len(trial.spellings)} other spellings of the right answers:"
            f" {names}{effect_on_numbers}",
            _remedy_of_refused(refused, is_read_in_part=bool(read_in_part)),
            severity="warning" if mixed or read_in_part or surely_equal else "info",
            evidence=[
                *_lines_on_refused(surely_equal, mixed),
                *_lines_on_numbers_read_in_part(read_in_part),
                *_lines_on_verifiers(trial),
            ],
            cases=[
                _case_of_spelling(one) for one in sorted(refused, key=lambda one: one not in mixed)
            ],
            count=len(refused),
            total=len(trial.spellings),
        )
