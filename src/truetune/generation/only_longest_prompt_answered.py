"""Tells whether, of each batch in the order of the file, only the answer to the longest prompt is good.

A decoder that is given a batch padded on the right writes behind the pads: only the longest prompt of each batch has
none. The batch size is not in a file of answers, so each size is tried. In each batch, the longest prompt has the best
answer by chance with a probability of one over its rows (ties count for chance), and the number of such batches has a
Poisson binomial distribution. Long prompts may have better answers for another reason. So the answers to prompts that
are as long, and are not the longest of their batch, must be clearly worse.

The trade-off: answers that were sorted, shuffled or selected after they were generated tell nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from truetune.generation.answer_samples import Sample

BATCH_SIZES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 25, 30, 32, 40, 48, 50, 64)
"""Sizes that are tried: what scripts set. Each further one is a chance more for a false alarm"""
MIN_BATCHES = 8
"""Below, one in 16 by chance is no proof against all sizes"""
MAX_CHANCE = 1e-4
"""Probability of so many batches by chance, for all sizes together (Bonferroni)"""
# A file has characters, and a batch is padded by tokens: of English chats the longest is mostly the same. At 0.6,
# answers that grow better with their prompt's length (r = 0.45) passed in 1 of 40 simulated files of 240 rows.
MIN_BEST_SHARE = 0.75
"""Share of the batches whose longest prompt has the best answer"""
# Chosen, not measured.
MIN_COMPARED_PROMPTS = 3
"""Prompts that are as long and are not the longest of their batch; fewer are no comparison"""
MIN_WIN_SHARE = 0.9
"""Share of the comparisons with those that are won. Where quality grows with the length alone it is 0.5 to 0.78"""
# Chosen for speed: each batch size is tried on them, and the distribution takes the square of the batches.
MAX_ROWS = 4_000
"""Rows that are looked at: the pattern is in each part"""


@dataclass(frozen=True, slots=True)
class LongestOfBatches:
    """Batches of which only the longest prompt was answered well."""

    size: int
    batches: int
    best: int
    """Batches whose longest prompt has the best answer"""
    quality: float
    """Mean of the answers to the longest prompts: 0 with a fault, else the overlap with the reference, 1 without one"""
    others: float
    """The same of all others"""

    @property
    def share(self) -> float:
        """Of the batches, those whose longest prompt has the best answer"""
        return self.best / self.batches


def find_batch_size_where_only_longest_is_good(
    samples: Sequence[Sample],
) -> LongestOfBatches | None:
    """The batch size at which only the longest prompt of each batch is answered well; None where there is none."""
    rows = samples[:MAX_ROWS]
    lengths = [_prompt_characters(sample) for sample in rows]
    qualities = [_quality_of_answer(sample) for sample in rows]
    if len(set(qualities)) < 2 or not all(lengths):
        return None
    clearest: LongestOfBatches | None = None
    for size in BATCH_SIZES:
        batches = list(_batches_longest_prompt_first(lengths, size))
        if len(batches) < MIN_BATCHES:
            break
        chance, found = _chance_longest_prompts_are_best_and_counts(batches, size, qualities)
        is_clear = chance * len(BATCH_SIZES) < MAX_CHANCE and found.share >= MIN_BEST_SHARE
        is_clearer = clearest is None or found.share > clearest.share
        if (
            is_clear
            and is_clearer
            and _do_batch_longest_beat_equally_long_prompts(batches, lengths, qualities)
        ):
            clearest = found
    return clearest


def _batches_longest_prompt_first(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """The rows of each batch, the longest first; without batches of one row, or with several that are the longest."""
    for start in range(0, len(lengths), size):
        batch = sorted(range(start, min(start + size, len(lengths))), key=lambda row: -lengths[row])
        if len(batch) > 1 and lengths[batch[0]] > lengths[batch[1]]:
            yield batch


def _chance_longest_prompts_are_best_and_counts(
    batches: Sequence[Sequence[int]], size: int, qualities: Sequence[float]
) -> tuple[float, LongestOfBatches]:
    """The probability that so many longest prompts have the best answer by chance, and what was counted."""
    best, chances = 0, []
    for batch in batches:
        top = max(qualities[row] for row in batch)
        chances.append(sum(qualities[row] == top for row in batch) / len(batch))
        best += qualities[batch[0]] == top
    longest = [qualities[batch[0]] for batch in batches]
    others = [qualities[row] for batch in batches for row in batch[1:]]
    longest_of_batches = LongestOfBatches(
        size, len(batches), best, _mean_or_zero(longest), _mean_or_zero(others)
    )
    return _poisson_binomial_tail(chances, best), longest_of_batches


def _poisson_binomial_tail(chances: Sequence[float], hits: int) -> float:
    """P(at least so many hits) of independent draws with these chances: the Poisson binomial distribution."""
    exactly = [1.0, *[0.0] * len(chances)]
    for done, chance in enumerate(chances, 1):
        for count in range(done, 0, -1):
            exactly[count] = exactly[count] * (1 - chance) + exactly[count - 1] * chance
        exactly[0] *= 1 - chance
    return sum(exactly[hits:])


def _do_batch_longest_beat_equally_long_prompts(
    batches: Sequence[Sequence[int]], lengths: Sequence[int], qualities: Sequence[float]
) -> bool:
    """Are the answers to the longest prompts of the batches better than those to other prompts that are as long?"""
    longest = {batch[0] for batch in batches}
    shortest = sorted(lengths[row] for row in longest)[len(longest) // 4]
    long = [row for row, length in enumerate(lengths) if length >= shortest]
    ours = [qualities[row] for row in long if row in longest]
    others = [qualities[row] for row in long if row not in longest]
    if len(others) < MIN_COMPARED_PROMPTS:
        return False
    # The probability that one of ours is better than one of the others, as in the Mann-Whitney test.
    wins = sum((one > other) + (one == other) / 2 for one in ours for other in others)
    return wins >= MIN_WIN_SHARE * len(ours) * len(others)


def _prompt_characters(sample: Sample) -> int:
    """Characters of the prompt."""
    chat = sample.prompt.chat
    if chat is None:
        return len(sample.prompt.question)
    return sum(len(str(message.get("content") or "")) for message in chat.messages)


def _quality_of_answer(sample: Sample) -> float:
    """The quality of an answer, 0 to 1: 0 with a fault in its text, else what it has in common with
    its reference.
    """
    scores = sample.scores
    has_fault = scores.empty or scores.garbage or scores.echoed or scores.looped
    if has_fault or scores.switched:
        return 0.0
    return 1.0 if scores.overlap is None else scores.overlap


def _mean_or_zero(values: Sequence[float]) -> float:
    """The mean of some values; 0 of none."""
    return sum(values) / len(values) if values else 0.0
