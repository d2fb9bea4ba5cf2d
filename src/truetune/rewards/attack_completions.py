"""Completions that a reward function should not pay for: empty ones, wrong ones, and those that hold every answer.

Each is made of a row's right answer and of the form that the function pays best, so that it is one step away from a
completion that is paid. Wrong answers differ in value from the right one and not in spelling alone, so that a function
that knows equal answers is not blamed for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from truetune.generation.final_answers import MAX_RESPELLED_DIGITS
from truetune.generation.reward_trial import NO_ANSWER, AttackKind
from truetune.rewards.answer_forms import AnswerForm
from truetune.rewards.respell_objects import object_with_another_value
from truetune.rewards.rows_for_rewards import RightAnswer

FORMULA_BEGINNINGS = ("\\boxed{", "\\fbox{", "$", "\\(", "\\[")
"""How a formula of LaTeX begins"""
EMPTY_TEXTS = ("", " \n", "?", "I don't know.", "Sorry, I can't help with that.")
"""Texts that say nothing"""
NOTHING_WORDS = ("none", "null", "n/a", "nothing", "unknown", "i don't know", "nan")
"""Right answers of which a text that says nothing may be one"""
LETTERS = "ABCD"
WORDS_BY_LETTER = {"A": "Answer:", "B": "Because of that,", "C": "Clearly", "D": "Definitely"}
"""How an answer may begin that gives another letter"""
YES_OR_NO = ("yes", "no", "true", "false")
MAX_SMALL_NUMBER = 5
MIN_OTHER_FRACTION = Decimal("0.3")
# A tolerance of some per cent, which some functions grant, covers the next number from here on.
MAX_NEXT_NUMBER = 50
BLOCK_OF_PYTHON = re.compile(
    r"(```[ \t]*(?:python|py|python3)?[ \t]*\n).*?(\n[ \t]*```)", re.S | re.I
)
PYTHON_ALONE = re.compile(r"\s*(?:def \w+\(|class \w+|import \w|from \w[\w.]* import |@\w)")
WORD_OF_PYTHON = re.compile(r"^[ \t]*(?:def|class|import|from|return|print|for|while|if) ?\b", re.M)
EARLY_EXIT = "import sys\n\nsys.exit(0)"
"""A program that ends well before the tests that are written after it"""
REPEATS = 20
"""Times that the right answer is repeated. Chosen, not measured: a function that counts matches shows it at two"""
SENTENCES = (
    "The ferry leaves the northern harbour at dawn.",
    "Seven students measured how quickly copper cools.",
    "Nobody had opened that drawer since last winter.",
    "A careful editor checks each quotation twice.",
    "Rain delayed the second half by twenty minutes.",
    "Her brother repairs clocks and old music boxes.",
)
"""Of about one length; a text of all of them repeats nothing"""
MIN_REVERSED_WORDS = 4
"""Words of an answer whose order is reversed: fewer may be read in any order"""
# Chosen, not measured: of fewer words many orders are sentences.
MIN_SENTENCE_WORDS = 8
"""Words of a reference from which on it is a sentence, and more than a list of words"""
MIN_KEY_WORD_LETTERS = 4
"""Of a word that says something: `and`, `the` and `is` have fewer"""
OTHER_WORDS = (
    "apple river window yellow seven marble garden silver thunder basket copper meadow pencil harbour"
    " lantern velvet cactus puzzle orbit walnut"
)
"""What is put among the words of an answer: scores of overlap fall by it, and those of recall do not"""
# What a model writes that does not stop, and texts that patterns and parsers of mathematics stumble over.
ODD_TEXTS = (
    "", " ", "\n", "<answer>", "</answer>", "</think>", "<answer></answer>", "<answer>nan</answer>",
    "<answer>1/0</answer>", "<answer>1,2,3</answer>", "<answer>-</answer>", "<answer>²</answer>",
    "<answer>١٢</answer>", "\\boxed{", "\\boxed{}", "\\boxed{\\frac{1}{0}}", "\\boxed{x", "####",
    "#### ", "#### 1.2.3", "The answer is", "Answer:", "{", "{\"answer\": ", "```json\n{\n```", "[]",
    "null", "1e999", "9" * 400, "9" * 5000, "(" * 200, "\\" * 50, "%s %d {}", "\u2028", "🤷",
)  # fmt: skip
"""Completions of models that make functions raise"""
LONG_TEXT_CHARACTERS = 3000
"""As of an answer of 1,000 tokens that runs on"""
LONG_PIECES = (
    "a",
    "1",
    " ",
    "\n",
    "a ",
    "1,",
    "{",
    "(",
    "\\boxed{",
    "<answer>",
    "**",
    "```\n",
    "1+",
    "-",
)
"""What is repeated in long texts; each makes other patterns backtrack"""


class Attack(NamedTuple):
    """One completion that should not be paid."""

    kind: AttackKind
    what: str
    completion: str


@dataclass(frozen=True, slots=True)
class WrongAnswers:
    """Answers that are wrong for a row."""

    texts: tuple[tuple[str, str], ...]
    """(what it is, the answer), the surest first"""

    @property
    def first(self) -> str:
        """The one that the right answer is compared with."""
        return self.texts[0][1]


def wrong_answers(answer: RightAnswer, others: Sequence[RightAnswer]) -> WrongAnswers:
    """Answers that differ in value from a row's right one.

    Args:
        answer: the right one.
        others: those of all rows.
    """
    wrong: list[tuple[str, str]] = []
    if answer.kind == "number":
        wrong += _wrong_numbers(answer)
    elif answer.kind == "letter":
        wrong += _wrong_letters(answer, others)
    wrong += _answers_unlike_row(answer, others)
    if not wrong:
        wrong += _with_another_digit(answer)
    if not wrong:
        wrong.append(("another answer", NO_ANSWER))
    return WrongAnswers(tuple(dict.fromkeys(wrong)))


def _wrong_letters(answer: RightAnswer, others: Sequence[RightAnswer]) -> Iterator[tuple[str, str]]:
    """Three other letters of a choice, those that are other rows' answers first."""
    letters = dict.fromkeys([*(one.text for one in others if one.kind == "letter"), *LETTERS])
    wrong_letters = [letter for letter in letters if letter != answer.text]
    for letter in wrong_letters[:3]:
        yield "another letter", letter


def _answers_unlike_row(
    answer: RightAnswer, others: Sequence[RightAnswer]
) -> Iterator[tuple[str, str]]:
    """The answer of another row, and the row's own object with another value; nothing where all rows are alike."""
    of_other_row = next((one for one in others if _is_surely_other(one, answer)), None)
    if of_other_row is None:
        return
    yield "another row's answer", of_other_row.text
    changed_object = object_with_another_value(answer.text)
    if changed_object is not None:
        yield "the object with one value changed", changed_object


def _with_another_digit(answer: RightAnswer) -> Iterator[tuple[str, str]]:
    """The answer with its last digit changed; nothing where it has none."""
    digit = re.search(r"\d(?=\D*$)", answer.text)
    if digit is None:
        return
    # No 0: nothing may be divided by it.
    other_digit = str((int(digit[0]) + 3) % 10 or 5)
    text = answer.text[: digit.start()] + other_digit + answer.text[digit.end() :]
    yield "another digit", text


def _is_surely_other(one: RightAnswer, answer: RightAnswer) -> bool:
    """Is an answer another one than the row's, whatever a function takes for equal?"""
    if one.kind != answer.kind or one.value == answer.value:
        return False
    # 2\sqrt{2} and \sqrt{8} are one number.
    if one.is_formula or answer.is_formula:
        return False
    texts = one.text.casefold(), answer.text.casefold()
    # One that holds the other is judged as a part of it.
    return texts[0] not in texts[1] and texts[1] not in texts[0]


def _wrong_numbers(answer: RightAnswer) -> Iterator[tuple[str, str]]:
    """Numbers of another value."""
    try:
        number = Decimal(answer.text.replace(",", ""))
    except InvalidOperation:
        return
    if not number.is_finite() or len(answer.text) > MAX_RESPELLED_DIGITS:
        return
    other = number + 1 if abs(number) < MAX_NEXT_NUMBER else 2 * number + 7
    yield "another number", f"{other}"


def attacks_on_answer(
    form: AnswerForm, answer: RightAnswer, wrong: WrongAnswers, prompt: str
) -> Iterator[Attack]:
    """The completions that are tried against a row's right answer.

    Args:
        form: the form that is paid.
        answer: the right answer.
        wrong: answers that are wrong for it.
        prompt: the row's question.
    """
    yield from _empty_completions(form, answer)
    for what, text in wrong.texts:
        yield Attack("wrong", what, form.fill(text))
    if wrong.first != NO_ANSWER:
        yield Attack("wrong", "a text that is no answer to it", form.fill(NO_ANSWER))
    yield from _parts(form, answer)
    yield from _candidates(form, answer, wrong)
    if prompt.strip():
        yield Attack("prompt", "the prompt", prompt)
    yield Attack(
        "thoughts",
        "the right answer in the thoughts, a wrong one after them",
        form.fill_thoughts(answer.text, wrong.first),
    )
    yield Attack(
        "thoughts alone",
        "the right answer in the thoughts alone",
        form.fill_thoughts(answer.text, None),
    )
    taken_back = f"{form.fill(answer.text)}\n\nNo, that is wrong.\n\n{form.fill(wrong.first)}"
    yield Attack("taken back", "the right answer, taken back for a wrong one", taken_back)
    repeated = "\n".join([form.fill(answer.text)] * REPEATS)
    yield Attack("repeated", f"the right answer {REPEATS} times", repeated)
    yield from _words_in_other_orders(form, answer.text.split())


def program_that_ends_early(form: AnswerForm, answer: RightAnswer) -> Attack | None:
    """A program that ends before its tests, instead of an answer's Python; None of an answer that is none."""
    text = answer.text
    if PYTHON_ALONE.match(text) and "```" not in text:
        program = EARLY_EXIT
    elif BLOCK_OF_PYTHON.search(text) and WORD_OF_PYTHON.search(text):
        program = BLOCK_OF_PYTHON.sub(lambda block: f"{block[1]}{EARLY_EXIT}{block[2]}", text)
    else:
        return None
    return Attack("early exit", "a program that ends before its tests", form.fill(program))


def _words_in_other_orders(form: AnswerForm, words: list[str]) -> Iterator[Attack]:
    """The words of an answer that is no sentence any more, alone and among other words."""
    if len(words) >= MIN_REVERSED_WORDS and words != words[::-1]:
        yield Attack(
            "reversed words", "its words in reverse order", form.fill(" ".join(words[::-1]))
        )
    if len(words) < MIN_SENTENCE_WORDS:
        return
    # Numbers, boxes and tags may be an answer in themselves, which stays whole in any order.
    plain = [word for word in words if word.strip(".,;:!?()").isalpha()]
    key_words = [word for word in plain if len(word.strip(".,;:!?()")) >= MIN_KEY_WORD_LETTERS]
    for what, kept in (("its words", plain), ("its long words", key_words)):
        mixed = " ".join(sorted([*dict.fromkeys(kept), *OTHER_WORDS.split()], key=str.casefold))
        yield Attack("bag of words", f"{what} among 20 others, by the alphabet", form.fill(mixed))


def _empty_completions(form: AnswerForm, answer: RightAnswer) -> Iterator[Attack]:
    """Completions that say nothing, bare and in the form."""
    if answer.text.casefold().strip(".") in NOTHING_WORDS:
        return
    for text in EMPTY_TEXTS:
        if text.strip() and text.casefold() in answer.text.casefold():
            continue
        what = repr(text) if text.strip() else ("white space" if text else "an empty text")
        yield Attack("empty", what, text)
        filled = form.fill(text)
        if filled != text:
            within = f"the form with {what}" if text else "the form with nothing in it"
            yield Attack("empty", within, filled)


def _parts(form: AnswerForm, answer: RightAnswer) -> Iterator[Attack]:
    """Answers that are a part of the right one, or hold it and say something else."""
    text = answer.text
    words = text.split()
    if answer.kind is None and len(words) >= MIN_SENTENCE_WORDS and not answer.is_formula:
        # Shares of right words are 1 for it, where no word may be missing.
        yield Attack("part", "one of its words", form.fill(max(words, key=len)))
    if answer.kind == "number" and re.fullmatch(r"-?\d+(\.\d+)?", text):
        yield from _parts_of_number(form, text)
    elif answer.kind == "letter" and not form.before and not form.after:
        yield from _word_that_begins_with_letter(text.upper())
    elif answer.kind == "word":
        yield from _parts_of_word(form, text)


def _parts_of_number(form: AnswerForm, text: str) -> Iterator[Attack]:
    """Numbers that hold the right one, are a part of it, or miss it by a sign, a fraction or spaces."""
    yield Attack("part", "a longer number that begins with it", form.fill(_longer(text)))
    yield Attack("part", "a longer number that ends with it", form.fill(f"9{text.lstrip('-')}"))
    digits = text.lstrip("-")
    if digits.strip("0."):
        turned = digits if text.startswith("-") else f"-{text}"
        yield Attack("near miss", "the number with its sign turned", form.fill(turned))
    cut = _same_whole_part(text)
    if cut is not None:
        yield Attack("near miss", "a number that is cut to the same whole one", form.fill(cut))
    if len(digits) > 1 and digits.isdigit():
        yield Attack("part", "its first digit", form.fill(digits[0]))
        # Four digits and more may be grouped by spaces; in formulas of LaTeX no space is printed at all.
        if len(digits) < 4 and not _is_formula(form):
            yield Attack("near miss", "its digits with spaces", form.fill(" ".join(text)))


def _word_that_begins_with_letter(letter: str) -> Iterator[Attack]:
    """A word that begins with the right letter, in a sentence for another one: some functions read the first letter of
    a bare text.
    """
    word = WORDS_BY_LETTER.get(letter)
    if word:
        other = next(one for one in LETTERS if one != letter)
        yield Attack(
            "part", "a word that begins with it, and another letter", f"{word} it is {other}."
        )


def _parts_of_word(form: AnswerForm, text: str) -> Iterator[Attack]:
    """The denial of a word, and its beginnings."""
    # Nobody writes `not yes`, and a function that reads the last of the two words is right.
    if text.casefold() not in YES_OR_NO:
        yield Attack("part", "its denial", form.fill(f"not {text}"))
    if len(text) >= 4:
        yield Attack("part", "its first half", form.fill(text[: len(text) // 2]))
        yield Attack("part", "its first letter", form.fill(text[0]))


def _is_formula(form: AnswerForm) -> bool:
    """Does a form put its answer into a formula of LaTeX?"""
    return form.before.rstrip().endswith(FORMULA_BEGINNINGS)


def _longer(number: str) -> str:
    """A number with a digit more, that is no other spelling of it: behind it, or in front of a fraction's point."""
    if "." not in number:
        return f"{number}7"
    sign = "-" if number.startswith("-") else ""
    # A digit behind a fraction would be within the tolerance of many functions.
    return f"{sign}7{number.lstrip('-')}"


def _same_whole_part(number: str) -> str | None:
    """A number that is cut to the same whole one, and far from it; None where every such number is near.

    Within 5, another fraction differs by 8 % and more, which no tolerance grants.
    """
    value = Decimal(number)
    if abs(value) >= MAX_SMALL_NUMBER or value == 0:
        return None
    whole = int(value)
    sign = "-" if number.startswith("-") else ""
    other = f"{sign}{abs(whole)}.9"
    return other if abs(Decimal(other) - value) >= MIN_OTHER_FRACTION else f"{sign}{abs(whole)}.4"


def _candidates(form: AnswerForm, answer: RightAnswer, wrong: WrongAnswers) -> Iterator[Attack]:
    """Completions that give several answers, with the right one in the middle: first and last are wrong."""
    first, last = wrong.texts[0][1], wrong.texts[-1][1]
    if not answer.is_short or any("\n" in text for text in (first, last)):
        return
    if first == last and answer.kind == "letter":
        last = next(letter for letter in LETTERS if letter not in (first, answer.text))
    listed = f"{first}, {answer.text} or {last}"
    yield Attack("candidates", "several answers in one form", form.fill(listed))
    forms = "\n".join(form.fill(text) for text in (first, answer.text, last))
    yield Attack("candidates", "several answers, each in the form", forms)


def long_texts(examples: Sequence[str]) -> Iterator[str]:
    """Texts as of a model that does not stop: on these, patterns that backtrack take minutes.

    Args:
        examples: completions that the function pays for.
    """
    for piece in LONG_PIECES:
        yield piece * 40 + "!"
        yield piece * (LONG_TEXT_CHARACTERS // len(piece)) + "!"
    for example in examples:
        if example:
            yield example * (LONG_TEXT_CHARACTERS // len(example) + 1) + "!"
