"""A column that names the better answer contradicts what is taken as chosen.

## What it does
Judges pairs whose sides come from two answer columns (`response_a`, `response_b`) that a mapping takes as chosen and
rejected: `columns` in LLaMA-Factory's dataset_info.json, `field_chosen` in Axolotl, `--map`, or a script. It reads the
other columns that name the winner (`winner`, `preferred`, `better_response_id`: by letter, number, column, model or
text) or contain a score for each side, and counts the pairs in which they name the rejected one. If the columns are
already called chosen and rejected, it only reads scores (`score_chosen`, `rejected_rating`). Of several such columns,
the one that agrees most counts. A number that may mean either side counts only as far as both readings agree.

It is an error from 20 % of the pairs, and a warning from 5 % (25 % for numbers that may mean either side). For scores
it is an error from 40 %, since they are not what people chose. Next to `chosen` and `rejected`, ratings on a scale (1
to 10) are a warning from 2 %. If the ratings were compared as text ("10.0" is below "3.0"), that is an error. Other
scores, such as a reward model's, are a warning below 40 % if they disagree as often at wide margins as at narrow ones:
a second opinion would mostly disagree on close answers.

## Why it is bad
A comparison of A with B names its winner in a column. If a mapping takes the same column as chosen in every row, the
worse answer is learned whenever B won. In half of the rows, the two cancel out: the loss stays at ln 2 = 0.6931 and the
accuracy at 0.5. In nearly all rows, the sides are swapped.

## Example
```yaml
spec: {format: preference, map: {chosen: response_a, rejected: response_b}}
data:
  rows: 40
  prompt: "Q {i}?"
  response_a: "{words}"
  response_b: "{words_before}"
  preferred: B
```

## Use instead
```yaml
spec: {format: preference, map: {chosen: response_b, rejected: response_a}}
data:
  rows: 40
  prompt: "Q {i}?"
  response_a: "{words}"
  response_b: "{words_before}"
  preferred: B
```

## Fix safety
Read five pairs first. Rows whose winner is a tie teach nothing; dropping them is safe.

## References
- Rafailov et al. 2023, arXiv 2305.18290, section 4: labels exchanged in half of the pairs leave no preference
- LLaMA-Factory, data/README.md: `ranking`
- Bradley and Terry 1952, doi 10.2307/2334029: the chance of a preference falls to a half as two scores come together
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import pair_texts
from truetune.checks.pairs.evidence.do_scores_contradict_pairs_at_wide_margins import (
    log_likelihood_ratio_of_exchanged_sides,
)
from truetune.checks.pairs.evidence.winner_columns import (
    Sides,
    Vote,
    answer_columns_of_both_sides,
    winner_votes_of_row_columns,
)
from truetune.checks.rule import MAX_CASES, PairRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

MIN_PAIRS = 8
"""Pairs with a winner below which nothing is said"""
# Chosen, not measured: people who label a pair twice agree in seven to eight of ten, so that a winner of its own column
# that is not the chosen one in a fifth of the rows is no slip of single rows.
ERROR_SHARE, WARNING_SHARE, MIN_AGAINST = 0.2, 0.05, 3
# Chosen, not measured: reward models agree with people in 6 to 8 of 10 pairs, so that 4 of 10 against is near chance.
SCORE_SHARE = 0.4
# Chosen, not measured: below it the better of two readings leaves a mapping that is right in most rows.
UNSURE_SHARE = 0.25
HALF, ALL = 0.35, 0.9
"""Shares from which the directions cancel, and from which the sides are exchanged"""
# Chosen, not measured: marks that a pair was chosen by agree with it in every row, and a slip here and there is none.
SCALE_SHARE = 0.02
# Chosen: 1 to 10 in halves has 19 values; the rewards of a model have nearly one for each row.
MAX_SCALE_VALUES = 21
# Simulated: of 300 sets of 40 to 400 pairs whose scores are merely unsure, 8 at most are above ln 10; of 50 sets of 150
# pairs with a quarter of them exchanged, 48 are.
MIN_LOG_LIKELIHOOD_RATIO, MIN_EXCHANGED = 2.3, 10
"""Log-likelihood ratio and disagreeing pairs, from which equal disagreement at every margin means exchanged sides"""
MAX_MARGINS = 100_000
"""Pairs whose margins are kept: 0.8 MB, and far more than the likelihoods need"""
MAX_NUMBERS = 9
"""Values of a column of numbers that may name a side: -3 to 3, and some spare"""


@dataclass
class Tally:
    """What one column says over all pairs."""

    is_score: bool = False
    agree: int = 0
    against: int = 0
    ties: int = 0
    winners: Counter[str] = field(default_factory=Counter)
    """Pairs by what the column says"""
    numbers: dict[float, list[list[Case]]] = field(default_factory=dict)
    """Number -> the cases where the first side is chosen, and where the second is"""
    counts: Counter[tuple[float, int]] = field(default_factory=Counter)
    cases: list[Case] = field(default_factory=list)
    is_sure: bool = True
    """Is it known which side each value names?"""
    scale: set[str] = field(default_factory=set)
    """Different scores, as they are written, as far as a scale of marks has"""
    is_ordered_as_text: bool = True
    """Is the chosen side's score never below the other one's, compared as texts?"""
    margins: array[float] = field(default_factory=lambda: array("d"))
    """Of the first pairs with scores: the better score less the worse, negative where it is the rejected side's"""

    @property
    def pairs_with_winner(self) -> int:
        """Pairs with a winner."""
        return self.agree + self.against

    @property
    def share(self) -> float:
        """Share of the pairs with a winner in which it is not the chosen side."""
        return self.against / self.pairs_with_winner if self.pairs_with_winner else 0.0

    def add_scores(self, chosen: str, rejected: str) -> None:
        """Note the scores of a pair, as they are written."""
        if len(self.scale) <= MAX_SCALE_VALUES:
            self.scale.update((chosen, rejected))
        self.is_ordered_as_text = self.is_ordered_as_text and chosen >= rejected

    def add_margin(self, margin: float) -> None:
        """Note by how much the scores of a pair differ; negative where they prefer the rejected side."""
        if margin and len(self.margins) < MAX_MARGINS:
            self.margins.append(margin)

    @property
    def disagrees_at_any_margin(self) -> bool:
        """Do the scores disagree as often where they are far apart as where they are close?"""
        if self.against < MIN_EXCHANGED:
            return False
        return log_likelihood_ratio_of_exchanged_sides(self.margins) >= MIN_LOG_LIKELIHOOD_RATIO

    @property
    def are_scores_marks_on_a_scale(self) -> bool:
        """Are the scores marks of a scale, and not the numbers that a reward model gives?"""
        return 0 < len(self.scale) <= MAX_SCALE_VALUES


class WinnerColumnDisagrees(PairRule):
    code = "PREF029"
    fault = Fault.PREFERENCES_REVERSED
    symptoms = ("dpo-without-effect",)
    moot_where = ("preference-pairs-swapped",)
    severity = "error"
    needs_tokenizer = False
    judges_columns = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.tallies: dict[str, Tally] = {}
        self.taken = Counter[tuple[str, str]]()
        """Pairs by the columns that are taken as chosen and rejected"""
        self.are_named_by_rank = False
        self.tags: tuple[str, str] = ("", "")

    def add_batch(self, batch: Batch) -> None:
        """Count what columns of winners say of the pairs of a batch."""
        for row in batch.rows:
            if row.rejected is None:
                continue
            self.pairs += 1
            sides = answer_columns_of_both_sides(row.raw, pair_texts(row)) if row.raw else None
            if sides is not None and row.raw is not None:
                self.taken[sides.names[sides.chosen], sides.names[1 - sides.chosen]] += 1
                self.tags = sides.tags
                self.are_named_by_rank = sides.are_named_by_rank
                for vote in winner_votes_of_row_columns(row.raw, sides):
                    self._count_vote(batch, row, sides, vote)

    def _count_vote(self, batch: Batch, row: Conversation, sides: Sides, vote: Vote) -> None:
        """Count what a column says of a pair."""
        tally = self.tallies.setdefault(vote.column, Tally(vote.is_score))
        if vote.scores is not None:
            tally.add_scores(*vote.scores)
            distance = abs(float(vote.scores[0]) - float(vote.scores[1]))
            tally.add_margin(distance if vote.winner == sides.chosen else -distance)
        if not vote.is_score:
            tally.winners[vote.text] += 1
        if vote.number is not None:
            tally.counts[vote.number, sides.chosen] += 1
            cases = tally.numbers.setdefault(vote.number, [[], []])[sides.chosen]
        elif vote.winner is None:
            tally.ties += 1
            return
        elif vote.winner == sides.chosen:
            tally.agree += 1
            return
        else:
            tally.against += 1
            cases = tally.cases
        if len(cases) < MAX_CASES:
            text = f"{vote.column} is {vote.text}, and {sides.names[sides.chosen]} is chosen"
            cases.append(case_in_row(batch, row, text))

    def unmet(self) -> Unmet | None:
        """Also unmet where no column names the better answer of enough pairs."""
        lacking = super().unmet()
        if lacking is None and self._column_that_agrees_most() is None:
            return Unmet(
                f"it is about {MIN_PAIRS} pairs or more of two columns with a third one that names the better answer"
            )
        return lacking

    def measurement_if_clean(self) -> Measurement:
        """In how many pairs a column of winners names the rejected side."""
        column = self._column_that_agrees_most()
        tally = column[1] if column is not None else Tally()
        return make_count_measurement(
            "pairs whose winner, by a separate column, is the rejected side",
            tally.against,
            tally.pairs_with_winner,
        )

    def _column_that_agrees_most(self) -> tuple[str, Tally] | None:
        """The column of winners that speaks least against the labels; a score only where no column names a winner."""
        settled = {
            name: _tally_reading_numbers_as_sides(tally, self.tags)
            for name, tally in self.tallies.items()
        }
        judged = [
            (name, tally) for name, tally in settled.items() if tally.pairs_with_winner >= MIN_PAIRS
        ]
        named = [one for one in judged if not one[1].is_score] or judged
        return min(named, key=lambda one: one[1].share, default=None)

    def findings(self) -> Iterator[Finding]:
        column = self._column_that_agrees_most()
        if column is None:
            return
        name, tally = column
        if tally.against < MIN_AGAINST:
            return
        if self.are_named_by_rank and (
            tally.are_scores_marks_on_a_scale or tally.share < SCORE_SHARE
        ):
            yield from self._findings_if_scores_oppose_labels(name, tally)
            return
        if tally.share >= _turned_share_needed_for_finding(tally):
            yield self._finding_on_turned_pairs(name, tally)

    def _finding_on_turned_pairs(self, name: str, tally: Tally) -> Finding:
        """The finding on a column that names the rejected side in some pairs."""
        ((chosen, rejected), _), *others = self.taken.most_common(2)
        readable_name = _readable_column_name(name)
        says = "is better for" if tally.is_score else "names"
        at_least = "" if tally.is_sure else "at least "
        is_one_column_chosen = not others and not self.are_named_by_rank
        why = (
            f": {chosen} is taken as chosen in every row, whatever the column says"
            if is_one_column_chosen
            else ""
        )
        return self.finding(
            f"`{readable_name}` {says} the side that is taken as rejected in {at_least}{tally.against:,} of"
            f" {tally.pairs_with_winner:,} pairs ({tally.share:.0%}){why}{_effect_of_turned_pairs(tally.share)}",
            _remedy_of(tally, readable_name, chosen, rejected),
            severity="error" if tally.share >= ERROR_SHARE else "warning",
            evidence=list(_evidence_on_column_values_and_ties(tally, readable_name)),
            cases=tally.cases[:MAX_CASES],
            count=tally.against,
            total=tally.pairs_with_winner,
        )

    def _findings_if_scores_oppose_labels(self, name: str, tally: Tally) -> Iterator[Finding]:
        """Findings on marks that are better for the rejected side in more pairs than chance or another taste makes."""
        if (tally.are_scores_marks_on_a_scale and tally.share >= SCALE_SHARE) or (
            not tally.are_scores_marks_on_a_scale and tally.disagrees_at_any_margin
        ):
            yield self._build_finding_on_opposing_scores(name, tally)

    def _build_finding_on_opposing_scores(self, name: str, tally: Tally) -> Finding:
        """The finding on marks that are better for the rejected side in some pairs."""
        if tally.is_ordered_as_text:
            effect = (
                ": the ratings were compared as text (in which '10' is below '9'), so these pairs teach the worse"
                " answer"
            )
            remedy = "compare the ratings as numbers (float(rating)), and write the pairs again"
        else:
            # People may have chosen the sides, and a model given the marks.
            where = (
                ""
                if tally.are_scores_marks_on_a_scale
                else ", as often at wide margins as at narrow ones"
            )
            effect = f"{where}; if the scores are right, these pairs teach the worse answer"
            remedy = (
                "read five of these pairs: if the scores are right, swap their sides, or drop them"
            )
        readable_name = _readable_column_name(name)
        return self.finding(
            f"`{readable_name}` is better for the rejected side in"
            f" {tally.against:,} of {tally.pairs_with_winner:,} pairs ({tally.share:.0%}){effect}",
            remedy,
            severity="error"
            if tally.is_ordered_as_text or tally.share >= SCORE_SHARE
            else "warning",
            evidence=list(_evidence_on_column_values_and_ties(tally, readable_name)),
            cases=tally.cases[:MAX_CASES],
            count=tally.against,
            total=tally.pairs_with_winner,
        )


def _readable_column_name(name: str) -> str:
    """A column's name for a message; `* score`, the key of the scores of both sides, is `..._score`."""
    return name.replace("*", "...").replace(" ", "_") if "*" in name else name


def _turned_share_needed_for_finding(tally: Tally) -> float:
    """The share of turned pairs from which something is said of a column."""
    if tally.is_score:
        return SCORE_SHARE
    return WARNING_SHARE if tally.is_sure else UNSURE_SHARE


def _tally_reading_numbers_as_sides(tally: Tally, tags: tuple[str, str]) -> Tally:
    """A tally whose numbers are read as sides, if they can be."""
    if not tally.counts or tally.pairs_with_winner or len(tally.numbers) > MAX_NUMBERS:
        return tally
    first, second, is_sure = _numbers_naming_each_side_and_is_sure(frozenset(tally.numbers), tags)
    if not first or not second:
        return tally
    agree = _count_pairs_with_numbers_and_chosen_side(
        tally, first, 0
    ) + _count_pairs_with_numbers_and_chosen_side(tally, second, 1)
    against = _count_pairs_with_numbers_and_chosen_side(
        tally, first, 1
    ) + _count_pairs_with_numbers_and_chosen_side(tally, second, 0)
    is_turned = not is_sure and against > agree
    if is_turned:
        first, second, agree, against = second, first, against, agree
    cases = [
        case
        for numbers, side in ((first, 1), (second, 0))
        for number in numbers
        for case in tally.numbers.get(number, [[], []])[side]
    ]
    named = sum(tally.counts.values())
    return Tally(
        tally.is_score,
        agree,
        against,
        named - agree - against,
        tally.winners,
        cases=cases,
        is_sure=is_sure,
    )


def _numbers_naming_each_side_and_is_sure(
    numbers: frozenset[float], tags: tuple[str, str]
) -> tuple[frozenset[float], frozenset[float], bool]:
    """(numbers of the first side, numbers of the second side, is that sure?)."""
    surely = _numbers_enumerating_sides(numbers, tags)
    if surely is not None:
        return *surely, True
    below = frozenset(number for number in numbers if number < 0)
    above = frozenset(number for number in numbers if number > 0)
    if below and above:
        return below, above, False
    if numbers <= {0.0, 0.5, 1.0}:
        return frozenset((0.0,)), frozenset((1.0,)), False
    return frozenset(), frozenset(), False


def _numbers_enumerating_sides(
    numbers: frozenset[float], tags: tuple[str, str]
) -> tuple[frozenset[float], frozenset[float]] | None:
    """The numbers of the sides where they count them: as their columns do (`response_0`), or 1 and 2; else None."""
    own = {float(tag) for tag in tags if tag.isdigit()}
    if len(own) == 2 and numbers <= own:
        return frozenset((min(own),)), frozenset((max(own),))
    if not own and numbers <= {1.0, 2.0} and 2.0 in numbers:
        return frozenset((1.0,)), frozenset((2.0,))
    return None


def _count_pairs_with_numbers_and_chosen_side(
    tally: Tally, numbers: frozenset[float], side: int
) -> int:
    """The pairs with one of these numbers in which this side is chosen."""
    return sum(tally.counts[number, side] for number in numbers)


def _effect_of_turned_pairs(share: float) -> str:
    """What this share of turned pairs does to a training."""
    if share >= ALL:
        return "; the sides are swapped, so the worse answers are learned"
    if share >= HALF:
        return "; the two directions cancel out, so nothing is learned (loss at ln 2, accuracy near 0.5)"
    return "; these pairs teach the worse answer"


def _remedy_of(tally: Tally, column: str, chosen: str, rejected: str) -> str:
    """How the pairs are put right."""
    if tally.share >= ALL:
        return (
            f"swap the mapping: --map chosen={rejected} --map rejected={chosen}, or the two columns in the training"
            " settings"
        )
    return (
        f"write the pairs to a new file before training: in each row where `{column}` names {rejected}, set chosen"
        f" to {rejected} and rejected to {chosen}; drop ties; then map the new columns chosen and rejected (a column"
        " mapping cannot depend on the row)"
    )


def _evidence_on_column_values_and_ties(tally: Tally, column: str) -> Iterator[str]:
    """What the column holds, and how many pairs are ties."""
    if 0 < len(tally.winners) <= MAX_NUMBERS:
        counts = ", ".join(
            f"{text[:40]!r} {count:,}" for text, count in tally.winners.most_common(4)
        )
        yield f"`{column}` contains: {counts}"
    if not tally.is_sure:
        yield "the meaning of its values is not known: the smaller of the two counts is given"
    if tally.ties:
        yield f"{tally.ties:,} more pairs are ties"
