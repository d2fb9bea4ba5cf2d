"""Predictions that hold their prompt: what `generate` of a causal model returns was decoded whole.

The answer is then scored as if the model had said its prompt: exact match is 0, role markers stand in every text. Found
are predictions in which the question of their row stands word for word, with nothing before it but what a template
writes (a role marker, or the same text in nearly all rows), and an answer behind it. It must be nearly all of them: a
model that repeats a question does so now and then, and in its own spacing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

MIN_PREDICTIONS = 8
"""Predictions from which a share is one; as an error on answers needs"""
MIN_SHARE = 0.9
"""Share of the predictions that hold their prompt, and of those that begin with the same text. Chosen, not measured:
all do but those whose prompt was cut at a limit, and a model repeats its questions now and then"""
MAX_HEADER_CHARACTERS, MAX_HEADER_WORDS = 60, 4
"""Characters and words that a template writes between two turns: `<|im_end|>\\n<|im_start|>assistant\\n`"""
MIN_CHARACTERS = 8
"""Characters of a question that is looked for: a shorter one stands in an answer by chance"""
_ROLE = r"(?:assistant|model|answer|response|output|solution|bot|ai|label|a)"
_ANSWER_HEADER = re.compile(
    r"(?:\s|<\|[^|<>\n]{1,40}\|>|<｜[^｜<>\n]{1,40}｜>|</?(?:start|end)_of_turn>|</s>|\[/INST\]"
    r"|\#{1,4} ?"
    + _ROLE
    + r":?[ \t]*(?=\n|$)|\*{0,2}"
    + _ROLE
    + r"\*{0,2}[ \t]*(?::\*{0,2}|(?=[\n<])))*",
    re.IGNORECASE,
)
"""What a template writes between a question and its answer"""
_TURN_BEGINNING = re.compile(
    r"(?:^|\n|\|>|>|\])[\s#*]*(?:user|human|instruction|input|question|prompt|query|q)?\*{0,2}:?"
    r"(?:<[^<>\n]{1,40}>|\[INST\]|\s)*\Z",
    re.IGNORECASE,
)
"""What it writes before a question"""
MAX_SEARCHED_CHARACTERS = 400
"""Characters before a question that are searched for the beginning of its turn: a header of a template is shorter, and
in a text of line breaks alone every one would be tried"""
_TURNS = re.compile(
    r"\A\s*(?:system\n.*?\n)?(?:user|human)\n.*\n(?:assistant|model)\n+", re.DOTALL | re.IGNORECASE
)
"""A chat whose control tokens were skipped, up to its last answer"""


class PromptInFront(NamedTuple):
    """Predictions that hold their prompt."""

    answers: tuple[str | None, ...]
    """What stands behind the prompt, one for each prediction; None where the prompt is not in it"""

    @property
    def count_of_predictions_with_prompt(self) -> int:
        """Predictions that hold their prompt"""
        return sum(answer is not None for answer in self.answers)


def find_prompt_in_front(
    texts: Sequence[str], questions: Sequence[str], references: Sequence[str]
) -> PromptInFront | None:
    """The answers behind the prompts; None where the predictions do not hold their prompts.

    Args:
        texts: the predictions.
        questions: what was asked, one for each; empty where it is not known.
        references: what should have been said. One that holds its question is no bare answer either.
    """
    parts = [_split_at_question(*row) for row in zip(texts, questions, references, strict=True)]
    common = _text_before_most_questions(parts)
    prompt_in_front = PromptInFront(tuple(_answer_behind_prompt(part, common) for part in parts))
    is_most = prompt_in_front.count_of_predictions_with_prompt >= max(
        MIN_PREDICTIONS, MIN_SHARE * len(texts)
    )
    return prompt_in_front if is_most and any(prompt_in_front.answers) else None


def _text_before_most_questions(parts: Sequence[_SplitPrediction | None]) -> str | None:
    """The text with which nearly all predictions begin, before their questions; None where they do
    not begin alike.
    """
    beginnings = Counter(part.before for part in parts if part is not None)
    if not beginnings:
        return None
    common = beginnings.most_common(1)[0][0]
    alike_count = sum(
        part is not None and part.has_common_start_and_mark_behind_question(common)
        for part in parts
    )
    return common if alike_count >= MIN_SHARE * len(parts) else None


def _answer_behind_prompt(part: _SplitPrediction | None, common: str | None) -> str | None:
    """The answer of a prediction whose question stands in its prompt; None for any other.

    Args:
        part: the prediction; None where it does not hold its question.
        common: the text with which nearly all predictions begin; None where they do not begin alike.
    """
    if part is None:
        return None
    begins_alike = common is not None and part.has_common_start_and_mark_behind_question(common)
    return part.answer if begins_alike or _does_text_end_with_turn_opening(part.before) else None


def answers_behind_repeated_prompts(
    texts: Sequence[str], prompts: Sequence[Sequence[str]], references: Sequence[str]
) -> tuple[str | None, ...]:
    """What stands behind the prompts where a part of the predictions begins with all of its own; None for the others.

    Args:
        texts: the predictions.
        prompts: of each what was said before the answer, turn by turn; one text where it is no chat.
        references: what should have been said.

    Returns:
        Only Nones where fewer than ENOUGH do.
    """
    rows = zip(texts, prompts, references, strict=True)
    answers = tuple(_answer_behind_turns(*row) for row in rows)
    found = sum(answer is not None for answer in answers)
    return answers if found >= MIN_PREDICTIONS else (None,) * len(answers)


def _answer_behind_turns(text: str, turns: Sequence[str], reference: str) -> str | None:
    """What a prediction says behind its whole prompt; None where it does not begin with it.

    Between the turns only marks of a template may stand. A bare question without any mark may be repeated as a manner
    of answering, and is none.
    """
    turns = [turn.strip() for turn in turns if turn.strip()]
    if not turns or sum(map(len, turns)) < MIN_CHARACTERS or turns[-1] in reference:
        return None
    prompt = _find_prompt_at_start(text, turns)
    if prompt is None:
        return None
    opening = _ANSWER_HEADER.match(text, prompt.end)
    end = opening.end() if opening else prompt.end
    is_marked = prompt.is_marked or bool(text[prompt.end : end].strip())
    return text[end:].strip() if is_marked else None


class _PromptAtStart(NamedTuple):
    """The turns of a prompt with which a prediction begins."""

    end: int
    """The first character behind the last turn"""
    is_marked: bool
    """Do several turns, or the mark of a template before a turn, show that it is a prompt?"""


def _find_prompt_at_start(text: str, turns: Sequence[str]) -> _PromptAtStart | None:
    """Where a prediction holds the turns of its prompt; None where more than a template's marks
    stands between them.
    """
    end, is_marked = 0, len(turns) > 1
    for turn in turns:
        start = text.find(turn, end)
        between = text[end:start]
        if start < 0 or not _is_short_as_header(between):
            return None
        is_marked = is_marked or (
            _does_text_end_with_turn_opening(between) and bool(between.strip())
        )
        end = start + len(turn)
    return _PromptAtStart(end, is_marked)


def _is_short_as_header(between: str) -> bool:
    """Is a text no longer than what a template writes between two turns?"""
    is_short = len(between) <= MAX_HEADER_CHARACTERS
    return is_short and len(between.split()) <= MAX_HEADER_WORDS


def is_question_framed_by_template(before: str, behind: str) -> bool:
    """Do the texts around a question show that a template wrote it, and the header of an answer?"""
    opening = _ANSWER_HEADER.match(behind)
    has_header = opening is not None and bool(opening[0].strip())
    is_turn = len(before) <= MAX_HEADER_CHARACTERS and (
        not before.strip() or _does_text_end_with_turn_opening(before)
    )
    return is_turn and has_header


def _does_text_end_with_turn_opening(before: str) -> bool:
    """Does the text before a question end with the beginning of a turn?"""
    return _TURN_BEGINNING.search(before, max(0, len(before) - MAX_SEARCHED_CHARACTERS)) is not None


class _SplitPrediction(NamedTuple):
    """A prediction that holds its question."""

    before: str
    mark: str
    """What a template writes behind a question; empty for white space alone"""
    answer: str

    def has_common_start_and_mark_behind_question(self, common: str) -> bool:
        """Does it begin as the others do, with a mark behind its question? Without one, `The corrected text: ...` of a
        model would be a prompt."""
        return self.before == common and bool(self.mark)


def _split_at_question(text: str, question: str, reference: str) -> _SplitPrediction | None:
    """The parts of a prediction; None where its question does not stand in it as it was asked."""
    asked = question.strip()
    if not asked:
        turns = _TURNS.match(text)
        if turns is None or _TURNS.match(reference):
            return None
        return _SplitPrediction("", turns[0].strip(), text[turns.end() :])
    if len(asked) < MIN_CHARACTERS or asked in reference:
        return None
    before, found, behind = text.partition(asked)
    if not found:
        return None
    opening = _ANSWER_HEADER.match(behind)
    end = opening.end() if opening else 0
    mark, answer = behind[:end].strip(), behind[end:].strip()
    if not mark and answer.startswith(asked):
        # Said again at once, with nothing of a template between: the model repeats the question.
        return None
    return _SplitPrediction(before, mark, answer)
