"""Counts of bad answers over the looks of a run, and whether chance makes them.

Eight prompts are few: one or two answers more or less are noise. So shares are compared by Fisher's exact test, and
judged by the tail of a binomial distribution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

from truetune.checks.figure import Figure, Series
from truetune.checks.findings import Case
from truetune.checks.judgement import Unmet
from truetune.checks.shorten_text import quote_shortened
from truetune.generation.answer_samples import Sample, SampledRun, SamplingPass
from truetune.generation.invented_turns import find_invented_turns
from truetune.generation.longest_of_batches import find_longest_of_batches

PAD_ON_THE_LEFT = (
    "generate with padding_side='left' (truetune lint SCRIPT shows the place), and judge the answers again: the model"
    " may be fine"
)
"""What to do first about answers of batches that were padded on the right, whatever fault they have"""
CHANCE = 0.025
"""A change that chance makes more often than this is none; it is shared out among the looks that are compared
(Bonferroni)."""
ENOUGH = 8
"""Prompts that an error needs"""
LATE = 0.5
"""The share of a run after which a model is expected to do what it is taught"""

Bad = Callable[[Sample], "bool | None"]


@dataclass(frozen=True, slots=True)
class Count:
    """Bad answers of one look."""

    step: int
    bad: int
    of: int

    @property
    def share(self) -> float:
        return self.bad / self.of

    def __str__(self) -> str:
        return f"{self.bad} of {self.of}"


@dataclass(frozen=True, slots=True)
class BadAnswers:
    """Answers that are bad now."""

    counts: tuple[Count, ...]
    """One for each look"""
    best: Count | None
    """The look with the fewest, where there are more now than chance makes"""
    samples: tuple[Sample, ...]
    """The bad ones of the last look"""

    @property
    def last(self) -> Count:
        return self.counts[-1]

    @property
    def before(self) -> str:
        """`; at step 20 it was 1 of 8`, where it was better."""
        return f"; at step {self.best.step:,} it was {self.best}" if self.best else ""

    @property
    def evidence(self) -> list[str]:
        """The counts of all looks, and how likely chance is."""
        if len(self.counts) == 1:
            return []
        lines = [
            "by step: "
            + ", ".join(f"{count.step:,}: {count.bad}/{count.of}" for count in self.counts[-12:])
        ]
        if self.best:
            chance = risen(self.best, self.last)
            lines.append(
                f"chance makes such a change with a probability of {chance:.2g} (Fisher's exact"
                " test)"
            )
        return lines

    def figure(self, title: str) -> Figure | None:
        """The shares by step; None for a single look."""
        if len(self.counts) == 1:
            return None
        steps = tuple(float(count.step) for count in self.counts)
        return Figure(
            title,
            (Series("share of the answers", steps, tuple(count.share for count in self.counts)),),
        )


def find_bad_answers(watched: SampledRun, bad: Bad, tolerated: float) -> BadAnswers | None:
    """The answers that `bad` holds for (None: can't tell), where they have become more, or are, late in a run, surely
    more than the tolerated share."""
    found = counted(watched, bad)
    if found is None or not (found.best or (late(watched) and often(found.last, tolerated))):
        return None
    return found


def counted(watched: SampledRun, bad: Bad) -> BadAnswers | None:
    """Counts of all looks; None where the last one has nothing to count."""
    counts = [_count(look, bad) for look in watched.looks]
    if not counts or not counts[-1].of:
        return None
    *earlier, last = (count for count in counts if count.of)
    best = min(earlier, key=lambda count: count.share, default=None)
    rose = best is not None and risen(best, last) < CHANCE / len(earlier)
    samples = tuple(sample for sample in watched.looks[-1].samples if bad(sample))
    return BadAnswers((*earlier, last), best if rose else None, samples)


def _count(look: SamplingPass, bad: Bad) -> Count:
    said = [verdict for sample in look.samples if (verdict := bad(sample)) is not None]
    return Count(look.step, sum(said), len(said))


def risen(first: Count, last: Count) -> float:
    """The probability of so many bad ones in `last`, or more, had they the same share as in `first`: Fisher's exact
    test, one-sided (Fisher 1922)."""
    both = first.bad + last.bad
    ways = sum(
        comb(last.of, i) * comb(first.of, both - i) for i in range(last.bad, min(last.of, both) + 1)
    )
    return ways / comb(first.of + last.of, both)


def often(count: Count, share: float) -> bool:
    """Are there more than so large a share, more surely than by chance? The upper tail of a binomial distribution."""
    n = count.of
    tail = sum(comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(count.bad, n + 1))
    return count.bad > 0 and tail < CHANCE


def late(watched: SampledRun) -> bool:
    """Has enough of the run passed that the model should do what it is taught?"""
    return watched.finished or (
        watched.total is not None and watched.looks[-1].step >= LATE * watched.total
    )


def all_of(found: BadAnswers) -> bool:
    """Is every answer bad, of enough of them?"""
    return found.last.bad == found.last.of >= ENOUGH


def fits(watched: SampledRun, sample: Sample) -> bool:
    """Could the answer have stopped like its reference, within the limit of new tokens?"""
    return 0 < len(sample.prompt.reference_ids) <= watched.limit or not sample.prompt.reference


def runs_on(watched: SampledRun, sample: Sample) -> bool | None:
    """Did the answer not stop? None where its limit was too short, or nobody knows what ended it."""
    return not sample.scores.stopped if sample.scores.end_known and fits(watched, sample) else None


def ends_unknown(watched: SampledRun) -> Unmet | None:
    """Why nothing can be said of stopping, where nobody knows what ended the answers."""
    if not watched.looks or any(sample.scores.end_known for sample in watched.looks[-1].samples):
        return None
    return Unmet(
        "nothing says what ended the answers",
        "write `finish_reason` or `stopped` beside each answer",
    )


def stop_probability(look: SamplingPass) -> float | None:
    """Median over the prompts of P(stop) behind the reference answer; None where there are no references."""
    known = [p for sample in look.samples if (p := sample.answer.stop_probability) is not None]
    return median(known) if known else None


@dataclass(frozen=True, slots=True)
class NextTurn:
    """Answers that go on with the next question, as a finding says it."""

    evidence: str
    remedy: str


def writes_next_turn(watched: SampledRun, found: BadAnswers) -> NextTurn | None:
    """Do these answers answer, and go on with the marker of the prompts? Then the stop token was not learned."""
    turns = find_invented_turns(watched.looks[-1].samples, found.samples)
    if turns is None:
        return None
    right = (
        f"; what stands before it is the reference word for word in {turns.right:,}"
        if turns.right
        else ""
    )
    return NextTurn(
        f"{turns.answers:,} of {len(found.samples):,} answer, and then go on with"
        f" {turns.marker!r} and a question of their own{right}",
        "the model has not learned to stop behind its answer: in training, end each text with the EOS token and"
        " supervise it (pad = eos masks it; truetune run -- COMMAND shows labels); until then give generation the"
        f" stop string {turns.marker!r}",
    )


def padded_in_batches(watched: SampledRun) -> str | None:
    """Evidence that the batches of these answers were padded on the right; None where the rows show no such thing."""
    found = find_longest_of_batches(watched.looks[-1].samples)
    if found is None:
        return None
    return (
        f"in {found.best:,} of {found.batches:,} batches of {found.size} in the order of the rows, the longest prompt"
        f" has the best answer (quality {found.quality:.2f}, all others {found.others:.2f}): shorter prompts were"
        " padded on the right"
    )


def cases(samples: Sequence[Sample]) -> list[Case]:
    """What was asked and said. Where rows share a line, as in JSON on one line, they are told apart by their number."""
    shared = Counter((sample.prompt.file, sample.prompt.line) for sample in samples)
    return [_case(sample, shared[sample.prompt.file, sample.prompt.line] > 1) for sample in samples]


def _case(sample: Sample, by_row: bool) -> Case:
    prompt = sample.prompt
    number = f"row {prompt.row}: " if by_row and prompt.row >= 0 else ""
    line = prompt.line if prompt.file and not number else None
    said = f"{quote_shortened(prompt.question)} gives {quote_shortened(sample.answer.text)}"
    return Case(number + said, file=prompt.file or None, line=line)
