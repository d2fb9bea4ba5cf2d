"""An LLM judge decides by position: the first (or second) answer wins, whatever it says.

## What it does
Reads the verdicts of files with pairs of answers (`answer_a`, `answer_b`, `verdict`; `model_a`, `model_b`, `winner`).
It counts which position won if position should not matter: the same two answers judged in both orders, a model against
itself, or two models compared each way. It fires if one position won 20 verdicts or more, so often that it happens by
chance less than once in a thousand.

## Why it is bad
A script that always shows its own model first then measures the judge's preference for the first position: the tuned
model beats the base model in 75 % of the questions, and the base model the tuned one.

## Example

```yaml
rows: 0
judged:
  both orders: AA AA AA AA AA AA AA AA AA AA AA AA AA AA AA AA AA AA AA AA BA AB BB
```

## Use instead

```yaml
rows: 0
judged:
  both orders: AB BA AB BA AB AB BA AB AB AB BA AB AB BA AB AB BA AB AB BA AA AB BB
```

## Fix safety
There is no automatic fix. Judge each pair in both orders, and count a win only if both verdicts name the same answer;
otherwise it is a tie. Randomising the order corrects the mean but keeps the noise.

## References

- Zheng et al. 2023, Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena, arXiv 2306.05685
- Wang et al. 2023, Large Language Models are not Fair Evaluators, arXiv 2305.17926
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NO_VERDICTS
from truetune.checks.rule import EvaluationRule
from truetune.data.llm_judge_verdicts_and_bias import (
    JudgedPair,
    PlaceCount,
    count_wins_that_show_place_bias,
)


class JudgePrefersAPlace(EvaluationRule):
    code = "EVAL015"
    fault = Fault.JUDGE_BIASED
    symptoms = ("odd-metrics",)
    severity = "error"
    of_files = True

    def unmet(self) -> Unmet | None:
        """Unmet without verdicts, and where each pair was judged in one order only."""
        if not self.subject.judged:
            return NO_VERDICTS
        if not any(True for _ in count_wins_that_show_place_bias(self.subject.judged)):
            return Unmet(
                f"each of the {len(self.subject.judged):,} pairs was judged in one order only",
                "judge each pair in both orders",
            )
        return None

    def measurement_if_clean(self) -> str:
        """How often the first place won, and how often the second."""
        return "; ".join(
            f"the first position won {one.first} and the second {one.second} of {one.how}"
            for one in count_wins_that_show_place_bias(self.subject.judged)
        )

    def findings(self) -> Iterator[Finding]:
        for count in count_wins_that_show_place_bias(self.subject.judged):
            if count.is_uneven_beyond_chance:
                yield self._finding_on_place(count)
                # The surest kind says it; others would say the same of the same judge.
                return

    def _finding_on_place(self, count: PlaceCount) -> Finding:
        """The finding that one place wins though it should not matter."""
        place, wins = (
            ("first", count.first) if count.first > count.second else ("second", count.second)
        )
        of = count.number_of_decided_pairs + count.ties
        return self.finding(
            f"the judge decides by position: of {count.how}, the {place} answer won {wins:,} times and the other one"
            f" {count.number_of_decided_pairs - wins:,}",
            "judge each pair in both orders, and count a win only if both verdicts name the same answer; do not"
            " report this win rate",
            evidence=[
                f"the probability of such an uneven count by chance is {count.p_value_of_unevenness:.1g} (binomial"
                " test, two-sided)",
                *_describe_win_rates_by_file(self.subject.judged, place),
            ],
            cases=[_case_of_pair(count.case)] if count.case is not None else (),
            count=wins,
            total=of,
        )


def _describe_win_rates_by_file(pairs: tuple[JudgedPair, ...], place: str) -> Iterator[str]:
    """How often the place won in each file."""
    files = list(dict.fromkeys(pair.file for pair in pairs if pair.file))
    for file in files[:6]:
        decided = [
            pair for pair in pairs if pair.file == file and pair.verdict in ("first", "second")
        ]
        wins = sum(pair.verdict == place for pair in decided)
        if decided:
            yield f"in {file} the {place} position won {wins:,} of {len(decided):,}"


def _case_of_pair(pair: JudgedPair) -> Case:
    """A case for one judged pair: its question and its verdict, at its place."""
    return Case(
        f"{pair.question[:80]}: {pair.verdict}", file=pair.file or None, line=pair.line or None
    )
