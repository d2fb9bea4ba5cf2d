"""Cut answers: texts that end in mid-sentence, all at about one length, as a limit of new tokens leaves them.

A model that never learned to stop is cut at the limit as well. What tells the two apart is what stands before the cut:
there the answer has come to its end, and something follows it; here it was still on its way. So answers that hold their
reference, loop, or begin another turn are not counted. The trade-off: a model that rambles and never comes to its
answer looks as if it were cut.

All answers of a pass are judged together here. What one text shows by itself is in `answers_with_unclosed_parts`
(what it opens and never closes) and `cut_ends_of_training_texts` (its last word).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from truetune.generation.answer_samples import NO_LIMIT, Sample
from truetune.generation.final_answers import MARK_NAMES, answer_marks, holds_final_answer

# Chosen, not measured.
MIN_WORDS = 12
"""Words of a text that has sentences; names, labels and titles are shorter"""
OPEN_ENDS = ",:;=+-*/([{&<"
"""Characters behind which a text continues"""
LIST_MARKS = ("-", "*", "•", "|", "#", ">", "`", "<")
"""What begins a line that ends without a full stop: items of lists, headings, tables, code, tags"""
MIN_LENGTH_RATIO = 0.7
"""The shortest tenth of cut answers over the longest tenth, in characters: 64 tokens of arithmetic or prose are 0.75 to
0.9 by the tokenizer of Qwen2.5, and answers that end by themselves are below 0.4 in most sets"""
MAX_LENGTH_RATIO_OF_OTHERS = 1.15
"""A finished answer is hardly ever so much longer than those that were cut"""
TRIMMED_SHARE = 0.1
"""Share of the lengths that is left out at each end, before the shortest is compared with the longest"""
# All chosen, not measured. Share of the answers that were cut: a few long ones run into any limit. At half of it data
# with some long answers would be named, at double only runs where nearly nothing was finished.
MIN_CUT_SHARE = 1 / 3
# Share of the cut answers that may hold their reference: a model that runs on behind its answer holds it in most, one
# that was cut before its answer in few (it was quoted on the way).
MAX_SHARE_WITH_REFERENCE = 0.2
# Times its reference, in words, from which an answer went past its end rather than not to it. Wordings of one answer
# differ by some percent; at 2 an answer that runs on by half would count as cut.
MIN_LENGTH_PAST_END = 1.2
# Words of a reference that is a value, and says nothing of how long an answer should be.
MAX_WORDS_OF_VALUE = 8
# An error on answers needs as many everywhere (`checks/answers/count_bad_answers_per_pass.py`).
MIN_ANSWERS = 8
"""Cut answers that a limit is blamed for; fewer end so by accident"""
BOLD = "**"
"""What opens and closes bold text in Markdown: no item of a list, which has a space behind its mark"""
MIN_MARKED_SHARE = 0.2
"""Share of the answers that mark their result (`#### 560`), from which one without the mark is not whole. Chosen: a
model that was taught the mark writes it in all answers that come to their end, and half of them may be cut"""
MIN_OPEN_SHARE = 1 / 5
"""Share of those without the mark that must end in mid-sentence: a limit ends few texts between two sentences"""


def find_cut_answers(samples: Sequence[Sample], limit: int) -> list[Sample]:
    """The answers of one pass that a limit may have ended, before their end, and that nothing else is wrong with.

    Those that end in mid-sentence; where others mark their result, those too that have no mark and the same length.

    Args:
        samples: all answers of the pass.
        limit: new tokens that were allowed; NO_LIMIT where somebody else generated them.
    """
    candidates = [sample for sample in samples if _may_be_cut_and_is_faultless(sample, limit)]
    open_ended = [sample for sample in candidates if ends_in_mid_sentence(sample.answer.text)]
    unmarked = _candidates_without_result_mark(candidates, samples)
    if not unmarked or len(open_ended) < MIN_OPEN_SHARE * len(unmarked):
        return open_ended
    shortest = MIN_LENGTH_RATIO * max(len(sample.answer.text) for sample in open_ended)
    as_long = [sample for sample in unmarked if len(sample.answer.text) >= shortest]
    # By identity: comparing samples compares all their texts, which takes seconds for thousands of answers.
    cut_answer_ids = set(map(id, (*open_ended, *as_long)))
    return [sample for sample in candidates if id(sample) in cut_answer_ids]


def samples_not_left_out(samples: Sequence[Sample], left_out: Sequence[Sample]) -> list[Sample]:
    """The samples but these, which are some of them."""
    numbers = set(map(id, left_out))
    return [sample for sample in samples if id(sample) not in numbers]


def _may_be_cut_and_is_faultless(sample: Sample, limit: int) -> bool:
    """May a limit have ended this answer, and is nothing else wrong with it?"""
    # One that loops or talks for the user would not have come to its end with any limit.
    scores = sample.scores
    has_fault = scores.looped or bool(scores.markers) or scores.garbage
    return _may_be_cut(sample, limit) and not has_fault


def find_answers_ended_by_limit(samples: Sequence[Sample], limit: int) -> list[Sample]:
    """The cut answers of one pass, where enough were cut and a limit is what did it; else none."""
    cut = find_cut_answers(samples, limit)
    if len(cut) < max(
        MIN_ANSWERS, MIN_CUT_SHARE * len(samples)
    ) or _do_references_end_in_mid_sentence(samples):
        return []
    others = samples_not_left_out(samples, cut)
    return (
        cut if _were_ended_by_limit(cut, others) and not _do_answers_run_past_reference(cut) else []
    )


def excuse_length_where_limit_cut_answers(
    samples: Sequence[Sample], limit: int
) -> tuple[Sample, ...]:
    """The samples of one sampling pass; where a limit ended many, their length is no fault of the model."""
    cut = set(map(id, find_answers_ended_by_limit(samples, limit)))
    return tuple(
        replace(sample, scores=replace(sample.scores, too_long=None))
        if id(sample) in cut and sample.scores.too_long
        else sample
        for sample in samples
    )


def _were_ended_by_limit(cut: Sequence[Sample], others: Sequence[Sample]) -> bool:
    """Did a limit end them: because it is known, or because all have one length?"""
    if cut and all(sample.scores.end_known for sample in cut):
        return True
    return do_texts_end_at_one_maximum_length(
        [sample.answer.text for sample in cut], [sample.answer.text for sample in others]
    )


def find_result_mark(samples: Sequence[Sample]) -> str | None:
    """The mark by which enough of the answers give their result, the surest first; None where there is none."""
    if not samples:
        return None
    marks = [answer_marks(sample.answer.text) for sample in samples]
    for name in MARK_NAMES:
        if sum(name in of_answer for of_answer in marks) >= MIN_MARKED_SHARE * len(samples):
            return name
    return None


def _candidates_without_result_mark(
    candidates: Sequence[Sample], samples: Sequence[Sample]
) -> list[Sample]:
    """The candidates that do not come to the mark with which the others of `samples` give their result."""
    mark = find_result_mark(samples)
    if mark is None:
        return []
    return [
        sample
        for sample in candidates
        if mark not in answer_marks(sample.answer.text)
        or sample.answer.text.rstrip().endswith(mark)
    ]


def _may_be_cut(sample: Sample, limit: int) -> bool:
    """May a limit have ended it: one that is known to have, or nobody knows? Our own limit is named by another rule."""
    if not sample.scores.end_known:
        return True
    return not sample.scores.stopped and limit >= NO_LIMIT


def _do_references_end_in_mid_sentence(samples: Sequence[Sample]) -> bool:
    """Do the references end in mid-sentence too, as code, titles and data do? Half as often is enough."""
    references = [sample.prompt.reference for sample in samples if sample.prompt.reference.strip()]
    open_ends = sum(map(ends_in_mid_sentence, references))
    return bool(references) and open_ends >= MIN_CUT_SHARE * len(references) / 2


def _do_answers_run_past_reference(cut: list[Sample]) -> bool:
    """Did they continue behind the answer: do they hold their reference, or are they longer than a long one?"""
    with_reference = [sample for sample in cut if sample.prompt.reference.strip()]
    if not with_reference:
        # Without references only a limit that is known to have ended them would be blamed: not enough to tell.
        return all(sample.scores.end_known for sample in cut)
    past = sum(map(_runs_past_reference, with_reference))
    return past > MAX_SHARE_WITH_REFERENCE * len(with_reference)


def _runs_past_reference(sample: Sample) -> bool:
    """Is an answer far longer than its reference, or does it hold it?"""
    answer, reference = sample.answer.text, sample.prompt.reference
    words, reference_words = len(answer.split()), len(reference.split())
    is_text = reference_words > MAX_WORDS_OF_VALUE
    is_longer = is_text and words > MIN_LENGTH_PAST_END * reference_words
    return is_longer or holds_final_answer(answer, reference)


def ends_in_mid_sentence(text: str) -> bool:
    """Does a text of several words end inside a sentence, by its last line?"""
    said = text.rstrip()
    last = said.rpartition("\n")[2].strip()
    if len(said.split()) < MIN_WORDS or not last:
        return False
    if last.startswith(BOLD):
        # Bold text that never closes was cut; a line in bold alone is a heading.
        if last.count(BOLD) % 2:
            return True
        last = last.removeprefix(BOLD)
    if last.startswith(LIST_MARKS):
        # The mark of a heading alone, or of a result (`#### 560`): what it heads never came.
        return not last.strip("#")
    if _begins_numbered_item(last):
        # `Step 4:` and `4.` alone begin what never came; a whole item of a list needs no full stop.
        return len(last.split()) <= 2 and last.endswith((":", "."))
    return last[-1].isalpha() or last[-1] in OPEN_ENDS


def _begins_numbered_item(line: str) -> bool:
    """Does a line begin an item: `4.`, `4)`, `Step 4:`?"""
    first, _, rest = line.partition(" ")
    is_number = first.rstrip(".):").isdecimal()
    is_step = first.casefold() == "step" and rest[:1].isdecimal() and len(rest.split()) <= 1
    return is_number or is_step


def do_texts_end_at_one_maximum_length(cut: Sequence[str], others: Sequence[str]) -> bool:
    """Have texts nearly one length, and the others none beyond it, as a limit makes it?"""
    lengths = sorted(map(len, cut))
    if not lengths:
        return False
    tail = int(TRIMMED_SHARE * len(lengths))
    low, high = lengths[tail], lengths[-1 - tail]
    longer = sum(len(text) > MAX_LENGTH_RATIO_OF_OTHERS * lengths[-1] for text in others)
    return low >= MIN_LENGTH_RATIO * high and longer <= TRIMMED_SHARE * len(others)
