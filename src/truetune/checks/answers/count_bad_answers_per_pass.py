"""Counts the bad answers of each sampling pass of a run, and tells whether chance explains them.

Each rule on answers brings a verdict on one answer; here it is counted for each pass. A finding needs a share that has
risen since the best pass before, or one that is too large late in the run. Eight prompts are few: one or two answers
more or less are noise. So shares are compared by Fisher's exact test, and judged by the tail of a binomial
distribution. The trade-off: with few prompts a real change of two or three answers stays unnamed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

from truetune.checks.findings import Case
from truetune.checks.judgement import Unmet
from truetune.checks.plot_of_finding import Figure, Series
from truetune.checks.shorten_text import quote_shortened
from truetune.generation.answer_samples import Sample, SampledRun, SamplingPass
from truetune.generation.answers_continuing_with_next_prompt import find_invented_turns
from truetune.generation.only_longest_prompt_answered import (
    find_batch_size_where_only_longest_is_good,
)

# Rounds of one symbol that a person would not write: `......` and `-----` are shorter as a whole answer.
MIN_SYMBOL_ROUNDS = 8
# A mark or a control token (`<unk>`, `[PAD]`) alone, over and over. The lengths keep tags with text in them out.
_SYMBOL = re.compile(
    rf"\s*(?P<symbol>[^\w\s]|<[^<>\s]{{1,40}}>|\[[A-Z]{{2,8}}\])(?:\s*(?P=symbol)){{{MIN_SYMBOL_ROUNDS - 1},}}\s*"
)
NOT_A_NUMBER = (
    "check whether the logits are NaN: their argmax is then token 0, '!' in many vocabularies. Usually a bfloat16"
    " model overflows in float16: generate with dtype=torch.bfloat16 (float32 on a V100, T4 or RTX 20, which have"
    " no bfloat16), and check the weights for NaN (truetune check MODEL_FOLDER)"
)
PAD_ON_THE_LEFT = (
    "set tokenizer.padding_side = 'left' before you generate (truetune lint SCRIPT shows the line), and judge the"
    " answers again: the model may be fine"
)
"""What to do first about answers of batches that were padded on the right, whatever fault they have"""
# A change that chance makes more often than this is none: one side of the usual 95 %. At half, 8 prompts would need 6
# more bad answers where 5 do now; at double, one run of 20 would be warned for nothing.
MAX_CHANCE = 0.025
# Prompts that an error needs. Chosen: 8 are what a watched run asks by default, and of 8 all bad ones are no accident
# even where half are tolerated (1 of 256). At 4 that is 1 of 16; at 16 no error would come of a default run.
MIN_ANSWERS = 8
# P(stop) after the reference of a model that knows nothing of it: vocabularies have 32,000 tokens and more, so that
# chance gives 0.00003 at most. At 0.01 a model that begins to learn it would count as one that never did.
UNLEARNED_STOP_PROBABILITY = 0.001
# Chosen, not measured: with the usual schedules most of the learning is done at half of the steps. Earlier, a model
# that still learns its form would be blamed; later, the warning would come when the run is paid for.
LATE_SHARE_OF_RUN = 0.5

IsBad = Callable[[Sample], "bool | None"]


@dataclass(frozen=True, slots=True)
class BadAnswerCount:
    """Bad answers of one pass."""

    step: int
    bad: int
    of: int

    @property
    def share(self) -> float:
        """The share of bad answers among those that can be judged."""
        return self.bad / self.of

    def __str__(self) -> str:
        return f"{self.bad} of {self.of}"


@dataclass(frozen=True, slots=True)
class BadAnswers:
    """Answers that are bad now."""

    counts: tuple[BadAnswerCount, ...]
    """One for each pass"""
    best: BadAnswerCount | None
    """The pass with the fewest, where there are more now than chance makes"""
    samples: tuple[Sample, ...]
    """The bad ones of the last pass"""

    @property
    def count_in_last_pass(self) -> BadAnswerCount:
        """The count of the last sampling pass."""
        return self.counts[-1]

    @property
    def best_earlier_count_in_words(self) -> str:
        """The best earlier count, as the end of a message: `; at step 20 it was 1 of 8`.

        Empty if none was better.
        """
        return f"; at step {self.best.step:,} it was {self.best}" if self.best else ""

    @property
    def evidence(self) -> list[str]:
        """The counts of all sampling passes in words, and how likely chance makes the change."""
        if len(self.counts) == 1:
            return []
        lines = [
            ", ".join(
                (f"{count.bad} of {count.of} at step {count.step:,}") for count in self.counts[-12:]
            )
        ]
        if self.best:
            chance = p_value_of_rise(self.best, self.count_in_last_pass)
            lines.append(
                f"the probability of such a rise by chance is {chance:.2g} (Fisher's exact test, one-sided)"
            )
        return lines

    def figure(self, title: str) -> Figure | None:
        """A plot of the bad share by step; None for a single pass."""
        if len(self.counts) == 1:
            return None
        steps = tuple(float(count.step) for count in self.counts)
        return Figure(
            title,
            (Series("share of the answers", steps, tuple(count.share for count in self.counts)),),
        )


def bad_answers_if_risen_or_too_many(
    watched: SampledRun, is_bad: IsBad, tolerated: float
) -> BadAnswers | None:
    """The bad answers, where they have become more, or are, late in a run, more than is tolerated, beyond chance.

    Args:
        watched: the sampling passes of a run.
        is_bad: the verdict on one answer; None: it can't tell.
        tolerated: share of the answers that may be bad.
    """
    bad_answers = count_bad_answers(watched, is_bad)
    if bad_answers is None:
        return None
    is_too_many = is_late_in_run(watched) and is_bad_share_surely_above(
        bad_answers.count_in_last_pass, tolerated
    )
    return bad_answers if bad_answers.best or is_too_many else None


def count_bad_answers(watched: SampledRun, is_bad: IsBad) -> BadAnswers | None:
    """Counts the bad answers of all sampling passes; None if the last one has nothing to count."""
    counts = [_count_in_pass(look, is_bad) for look in watched.looks]
    if not counts or not counts[-1].of:
        return None
    *earlier, last = (count for count in counts if count.of)
    best = min(earlier, key=lambda count: count.share, default=None)
    # The best of many passes is best by chance too, so the limit is shared out among them (Bonferroni).
    has_risen = best is not None and p_value_of_rise(best, last) < MAX_CHANCE / len(earlier)
    samples = tuple(sample for sample in watched.looks[-1].samples if is_bad(sample))
    return BadAnswers((*earlier, last), best if has_risen else None, samples)


def _count_in_pass(look: SamplingPass, is_bad: IsBad) -> BadAnswerCount:
    """The bad answers of one sampling pass, among those that can be judged."""
    verdicts = [is_bad(sample) for sample in look.samples]
    judged = [verdict for verdict in verdicts if verdict is not None]
    return BadAnswerCount(look.step, sum(judged), len(judged))


def p_value_of_rise(first: BadAnswerCount, last: BadAnswerCount) -> float:
    """The probability of so many bad ones in `last`, or more, had they the same share as in `first`.

    Fisher's exact test, one-sided (Fisher 1922): of all ways to choose the bad ones among both, the part in which so
    many fall into `last`. Exact for any number of prompts, where a normal approximation of eight would be far off.
    """
    both = first.bad + last.bad
    ways = sum(
        comb(last.of, i) * comb(first.of, both - i) for i in range(last.bad, min(last.of, both) + 1)
    )
    return ways / comb(first.of + last.of, both)


def is_bad_share_surely_above(count: BadAnswerCount, share: float) -> bool:
    """Are there more than so large a share, more surely than by chance? The upper tail of a binomial distribution."""
    n = count.of
    tail = sum(comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(count.bad, n + 1))
    return count.bad > 0 and tail < MAX_CHANCE


def is_late_in_run(watched: SampledRun) -> bool:
    """Has enough of the run passed that the model should do what it is taught?"""
    return watched.finished or (
        watched.total is not None and watched.looks[-1].step >= LATE_SHARE_OF_RUN * watched.total
    )


def are_enough_and_all_bad(bad_answers: BadAnswers) -> bool:
    """Is every answer bad, of enough of them?"""
    return bad_answers.count_in_last_pass.bad == bad_answers.count_in_last_pass.of >= MIN_ANSWERS


def does_reference_fit_limit(watched: SampledRun, sample: Sample) -> bool:
    """Could the answer have stopped like its reference, within the limit of new tokens?"""
    return 0 < len(sample.prompt.reference_ids) <= watched.limit or not sample.prompt.reference


def did_answer_not_stop(watched: SampledRun, sample: Sample) -> bool | None:
    """Did the answer not stop? None where its limit was too short, or nobody knows what ended it."""
    if not sample.scores.end_known or not does_reference_fit_limit(watched, sample):
        return None
    return not sample.scores.stopped


def unmet_if_answer_ends_unknown(watched: SampledRun) -> Unmet | None:
    """Why nothing can be said of stopping, where nobody knows what ended the answers."""
    if not watched.looks or any(sample.scores.end_known for sample in watched.looks[-1].samples):
        return None
    return Unmet(
        "it is not known what ended the answers",
        "write `finish_reason` or `stopped` next to each answer",
    )


def median_stop_probability(look: SamplingPass) -> float | None:
    """Median over the prompts of P(stop) after the reference answer; None where there are no references."""
    probabilities = [sample.answer.stop_probability for sample in look.samples]
    known = [probability for probability in probabilities if probability is not None]
    # Medians: one reference that was cut in mid-sentence has a P(stop) of 0, and says nothing of the others.
    return median(known) if known else None


@dataclass(frozen=True, slots=True)
class NextTurn:
    """Answers that continue with the next question, as a finding says it."""

    evidence: str
    remedy: str


def find_answers_with_next_turn(watched: SampledRun, bad_answers: BadAnswers) -> NextTurn | None:
    """What the answers continue with after they have answered, if it is the prompts' own marker of
    the next question: then the stop token was not learned.

    None elsewhere.
    """
    turns = find_invented_turns(watched.looks[-1].samples, bad_answers.samples)
    if turns is None:
        return None
    right = f"; the text before it equals the reference in {turns.right:,}" if turns.right else ""
    return NextTurn(
        f"{turns.answers:,} of {len(bad_answers.samples):,} answer, and then continue with {turns.marker!r} and"
        f" another question{right}",
        "the model has not learned to stop: in training, end each text with the EOS token and give it a label (with"
        " pad = eos it is masked; truetune run -- COMMAND shows the labels); until then, pass the stop string"
        f" {turns.marker!r} to generation",
    )


def evidence_of_right_padding(watched: SampledRun) -> str | None:
    """Evidence that the batches of these answers were padded on the right; None where the rows show no such thing."""
    batches = find_batch_size_where_only_longest_is_good(watched.looks[-1].samples)
    if batches is None:
        return None
    return (
        f"in {batches.best:,} of {batches.batches:,} batches of {batches.size} rows, the longest prompt has the best"
        f" answer (quality {batches.quality:.2f}; all others {batches.others:.2f}): shorter prompts were padded on"
        " the right"
    )


def cases_of_samples(samples: Sequence[Sample]) -> list[Case]:
    """A case for each sample: its question and its answer.

    Rows that share a line are told apart by their number.
    """
    shared = Counter((sample.prompt.file, sample.prompt.line) for sample in samples)
    return [
        _sample_case(sample, shared[sample.prompt.file, sample.prompt.line] > 1)
        for sample in samples
    ]


def _sample_case(sample: Sample, by_row: bool) -> Case:
    """The question and its answer, at the row's line, or with its number where lines hold several rows."""
    prompt = sample.prompt
    number = f"row {prompt.row}: " if by_row and prompt.row >= 0 else ""
    line = prompt.line if prompt.file and not number else None
    text = f"{quote_shortened(prompt.question)} gives {quote_shortened(sample.answer.text)}"
    return Case(number + text, file=prompt.file or None, line=line)


def are_mostly_one_symbol(samples: Sequence[Sample]) -> bool:
    """Are most of these answers one and the same mark or control token, and nothing besides? NaN gives one id."""
    matches = [_SYMBOL.fullmatch(sample.answer.text) for sample in samples]
    symbols = Counter(match["symbol"] for match in matches if match is not None)
    return bool(symbols) and 2 * symbols.most_common(1)[0][1] > len(samples)
