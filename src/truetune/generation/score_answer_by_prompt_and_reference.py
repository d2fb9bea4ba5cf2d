"""Score one answer against its prompt and its reference; no model is needed.

Each score is a fact about the text: does it loop, repeat the question, leak the marks of a template, leave the
language, is it no text at all, how much does it share with the reference. What they make of the answer in a word is
said in `answer_verdicts`. A fault that the reference has as well is none: data of songs, forms and code have their own
loops and marks, and a model that learned them answers rightly.

Thresholds were chosen on one half of the answers of `bench.judge_answers` (851 answers that were labelled by hand, 57
of them echoes). What is said of half and double below was then measured on all (`--thresholds`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from difflib import SequenceMatcher
from itertools import dropwhile, takewhile

from truetune.generation.answer_parsers_named_by_user import (
    Parser,
    are_readings_equal_and_not_none,
    try_parse,
)
from truetune.generation.answer_samples import Answer, Prompt, Scores
from truetune.generation.answers_in_wrong_language import is_answer_in_wrong_language
from truetune.generation.final_answers import (
    answer_marks,
    parsed_answer_as_number_or_letter,
    value_of_bare_text,
)
from truetune.generation.find_literal_escapes import find_unwanted_escapes
from truetune.generation.garbage_text import (
    answer_perplexity,
    is_garbage,
    is_repeated_word_in_other_script,
)
from truetune.generation.identify_language import identify_language
from truetune.generation.repetition_loops import is_looping
from truetune.generation.split_words import (
    contains_word_sequence,
    count_words_of_units,
    is_word,
    split_units,
    split_words,
)
from truetune.render.unfilled_example_plan import THINK_END

REPETITION_GRAM = 4
"""Words of the sequences whose repetition is counted, as in work on repetition of language models"""
# At half there is a false alarm.
MIN_ECHO_WORDS = 4
"""Words that a question must have to be echoed"""
# At double 7 echoes are missed.
MIN_MARKED_ECHO_WORDS = 3
"""The same of a question that is echoed with its mark"""
# At half nothing changes: such answers are short of words that questions share.
MIN_LIKENESS, MIN_LIKENESS_CHARACTERS = 0.85, 10
"""Likeness of an answer that asks what was asked in nearly the same words, and the least characters of that"""
# Half or double changes nothing.
MIN_ECHO_BEGINNING_WORDS = 12
"""Words of the beginning of a longer question that are an echo"""
# With one time there is a false alarm, with 4, 2 echoes are missed; at double of a share one is.
MIN_ECHO_TIMES, MIN_ECHO_SHARE, MIN_MANY_ECHOES_SHARE = 2, 0.5, 0.2
"""A question that is said so often, and is so much of the answer, is an echo, be it short; or is all of it; more
often, some of it"""
# Half or double changes nothing on the labelled answers, whose references are short.
TOO_LONG_TIMES, TOO_LONG_WORDS = 10, 80
"""An answer is too long with so many times the words of its reference, and so many more"""
EXPLAINED_WORDS = 200
"""More words than these make it too long even where it gives the reference and explains it"""
EDGE_WORDS = 12
"""Words at both ends of an answer, in which a short reference may stand"""
_ROLE_AT_LINE_START = re.compile(
    r"^[ \t>*]*("
    r"(?:User|Human|Assistant|USER|HUMAN|ASSISTANT)\**[ \t]*:"
    r"|(?:用户|助手|人类)[：:]"
    r"|\#{2,3}[ ]*(?:Instruction|Response|Input|Human|Assistant|User|System)\b:?"
    r"|<(?:\||｜)(?:im_start|im_end|user|assistant|system|end|endoftext|eot_id|start_header_id|User|Assistant)(?:\||｜)>"
    r"|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>|</?s>"
    r")",
    re.MULTILINE,
)

_CONTROL_TOKEN = re.compile(
    r"(?<![`'\"“‘«])(?:<\|[A-Za-z][\w.-]{0,40}\|>|<｜[^｜<>\n]{1,40}｜>|</?(?:start|end)_of_turn>"
    r"|\[/?INST\]|<</?SYS>>|\[/?(?:AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]|<(?:bos|eos|pad|unk)>"
    r"|\[(?:PAD|EOS|BOS|SEP|CLS)\]|<(?:extra_id_|unused|reserved_)\d+>|</s>|<s>(?=\s*\[INST\]))"
    r"(?![`'\"”’»]|\s*(?i:tokens?|tags?|markers?|symbols?)\b)"
)
"""Control tokens of any template, wherever they stand; in quotes, code or before `token` they are spoken of"""
_TURN_BEGINNING = re.compile(
    r"<\|(?:im_start|start_header_id|user|assistant|system)\|>|<｜(?:User|Assistant)｜>|<start_of_turn>"
    r"|\[/?INST\]|<<SYS>>"
)
"""What begins a turn in the templates of any family"""
_HEADER_ROLES = frozenset(("assistant", "model", "gpt", "bot", "ASSISTANT"))
"""What templates write at the head of an answer, in a line of its own"""
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_STRUCK_OUT = re.compile(r"<s>[^<>]{1,200}</s>")
"""HTML's tag for text that is no longer right"""

_QUESTION_MARKS = ("?", "？", "؟", ";")
_COMMAS = (",", "，", "、", "،")
"""What a sentence continues behind: "Whether it is worth it, depends on ..." is an answer"""
_ROLE_ALONE = re.compile(r"^(system|user|assistant|model)$", re.MULTILINE)


def score_answer(
    prompt: Prompt, answer: Answer, *, control: Collection[str] = (), parse: Parser | None = None
) -> Scores:
    """The scores of one answer. A loop, an echo or a marker that the reference has too is none.

    What only the answers of a whole pass tell (`alike`, `elsewhere`, `gives`) is added by whoever has all of them, and
    `end_known` by whoever knows why the answer ended: an answer that has a stop id counts as stopped here.

    Args:
        prompt: what was asked, with its reference where there is one.
        answer: what the model wrote; a `stop` of None says that it was cut.
        control: the tokenizer's control tokens as text.
        parse: reads the answer, where the user named a parser.
    """
    text, reference = answer.text, prompt.reference
    words, reference_words = split_words(text), split_words(reference)
    has_reference = bool(reference.strip())
    language, reference_language = identify_language(text), identify_language(reference)
    before = _text_before_answer(prompt)
    # Of the answer with its stop token: that it ended is a part of what the model wrote.
    perplexity = answer_perplexity(answer.logprob, _token_count(answer))
    is_cut = answer.stop is None
    return Scores(
        stopped=not is_cut,
        empty=not text.strip(),
        looped=is_looping(text, cut=is_cut) and not is_looping(reference, cut=True),
        repetition=_repetition_share(words),
        echoed=_is_echo(prompt.question, text) and not _is_echo(prompt.question, reference),
        markers=_template_markers_only_in_answer(text, reference, prompt.question, control),
        language=language,
        switched=is_answer_in_wrong_language(text, reference, before, language, reference_language),
        length_ratio=_length_ratio(answer, prompt),
        exact=text.split() == reference.split() if has_reference else None,
        overlap=_word_f1(words, reference_words) if has_reference else None,
        parsed=None if parse is None else try_parse(parse, text) is not None,
        agrees=_do_parsed_readings_agree(parse, text, reference) if has_reference else None,
        garbage=_is_garbage_beside_sound_reference(
            text, language, perplexity, prompt, reference_language
        ),
        perplexity=perplexity,
        too_long=_is_reply_far_longer_than_reference(text, reference) if has_reference else None,
        escapes=find_unwanted_escapes(text, before),
    )


def _text_before_answer(prompt: Prompt) -> str:
    """The question, and what was said before it."""
    if prompt.chat is None:
        return prompt.question
    contents = (message.get("content") for message in prompt.chat.messages)
    return "\n".join(content for content in contents if isinstance(content, str))


def _token_count(answer: Answer) -> int:
    """Its tokens, the stop token among them."""
    return len(answer.ids) + (answer.stop is not None)


def _length_ratio(answer: Answer, prompt: Prompt) -> float | None:
    """Tokens of the answer over those of the reference; None without one."""
    if not prompt.reference_ids:
        return None
    return _token_count(answer) / len(prompt.reference_ids)


def _is_garbage_beside_sound_reference(
    text: str,
    language: str | None,
    perplexity: float | None,
    prompt: Prompt,
    reference_language: str | None,
) -> bool:
    """Is an answer no text, and its reference one?

    Args:
        text: of the answer.
        language: ISO 639-1 of the answer, where it is known.
        perplexity: of the answer under the model itself, where it is known.
        prompt: with its question and reference.
        reference_language: as `language`.
    """
    if is_garbage(text, language, perplexity) and not is_garbage(
        prompt.reference, reference_language
    ):
        return True
    # With a reference, an answer in other letters is judged as a change of the language.
    return not prompt.reference.strip() and is_repeated_word_in_other_script(text, prompt.question)


def _repetition_share(words: list[str]) -> float:
    """Share of the 4-grams that stand before, 0 to 1."""
    shifted = [words[start:] for start in range(REPETITION_GRAM)]
    grams = list(zip(*shifted, strict=False))
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _is_echo(question: str, text: str) -> bool:
    """Does a text begin with the question, as a sentence of its own? Or is it the beginning of a long one, or little
    else than the question, once or again and again?"""
    asked, answered = (
        list(dropwhile(lambda unit: not is_word(unit), split_units(part)))
        for part in (question, text)
    )
    # Its mark is not part of it: an answer may repeat the question without.
    while asked and not is_word(asked[-1]):
        asked.pop()
    if _is_repeated_question(asked, answered) or _is_little_but_question(question, text):
        return True
    has_mark = split_units(question)[-1:] == answered[len(asked) : len(asked) + 1]
    if count_words_of_units(asked) < (MIN_MARKED_ECHO_WORDS if has_mark else MIN_ECHO_WORDS):
        return False
    if answered[: len(asked)] == asked:
        # "Whether it is worth it, depends on ...": a comma continues the sentence, which is an answer.
        marks = list(takewhile(lambda unit: not is_word(unit), answered[len(asked) :]))
        return len(answered) == len(asked) or (bool(marks) and marks[-1] not in _COMMAS)
    is_long = count_words_of_units(answered) >= MIN_ECHO_BEGINNING_WORDS
    return is_long and asked[: len(answered)] == answered


def _is_repeated_question(asked: list[str], answered: list[str]) -> bool:
    """Is a text little else than the question? A greeting may be returned: a question has two words, or marks in it.

    Args:
        asked: units of the question, from its first word to its last.
        answered: units of the answer, from its first word.
    """
    words = count_words_of_units(asked)
    is_short = words < 2 or len(asked) < 3
    if not asked or (is_short and words < 1):
        return False
    times = _count_occurrences_of_part(asked, answered)
    filled = times * len(asked)
    if is_short:
        return times > MIN_ECHO_TIMES and filled >= MIN_ECHO_SHARE * len(answered)
    if times > MIN_ECHO_TIMES and filled >= MIN_MANY_ECHOES_SHARE * len(answered):
        return True
    if times >= MIN_ECHO_TIMES and filled >= MIN_ECHO_SHARE * len(answered):
        return True
    other_words = sum(map(is_word, answered)) - times * sum(map(is_word, asked))
    return times == 1 and other_words <= 0


def _count_occurrences_of_part(part: list[str], units: list[str]) -> int:
    """How often a part stands in a text, without overlaps."""
    times = at = 0
    while at + len(part) <= len(units):
        is_here = units[at : at + len(part)] == part
        times += is_here
        at += len(part) if is_here else 1
    return times


def _is_little_but_question(question: str, text: str) -> bool:
    """Does an answer ask nearly the same, and nothing else?"""
    asked, answered = (" ".join(part.split()).casefold() for part in (question, text))
    if asked[-1:] not in _QUESTION_MARKS or answered[-1:] not in _QUESTION_MARKS:
        return False
    # Comparing takes the product of both lengths: a long answer is no mere question.
    if len(asked) < MIN_LIKENESS_CHARACTERS or len(answered) > 2 * len(asked):
        return False
    return SequenceMatcher(None, asked, answered, autojunk=False).ratio() >= MIN_LIKENESS


def _is_reply_far_longer_than_reference(text: str, reference: str) -> bool:
    """Is what an answer says behind its reasoning far longer than the reference?"""
    # A thought is no length of the reply, and neither are the steps to a value that stands marked at their end.
    if THINK_END in text and THINK_END not in reference:
        text = text.rpartition(THINK_END)[2]
    last_line = text.rstrip().rpartition("\n")[2]
    if value_of_bare_text(reference) is not None and answer_marks(last_line):
        return False
    return _is_far_longer_than_reference(split_words(text), split_words(reference))


def _is_far_longer_than_reference(words: list[str], reference_words: list[str]) -> bool:
    """Far longer than the reference? One of a few words may be given and explained: at the start or at the end."""
    length = count_words_of_units(words) + _count_numbers(words)
    expected = count_words_of_units(reference_words) + _count_numbers(reference_words)
    if length < TOO_LONG_TIMES * expected or length - expected < TOO_LONG_WORDS:
        return False
    if length - expected >= EXPLAINED_WORDS or expected > EDGE_WORDS / 2:
        return True
    edges = (words[:EDGE_WORDS], words[-EDGE_WORDS:])
    return not any(contains_word_sequence(edge, reference_words) for edge in edges)


def _count_numbers(words: list[str]) -> int:
    """How many of some words are numbers."""
    return sum(word[0].isdigit() for word in words)


def _template_markers_only_in_answer(
    text: str, reference: str, question: str, control: Collection[str]
) -> tuple[str, ...]:
    """Markers of an answer that the question does not have, nor the reference; sorted.

    A reference that begins another turn is no excuse: it was made of rows that were rendered already, and data that
    were rendered twice teach the next turn.

    Args:
        text: of the answer.
        reference: empty where there is none.
        question: what was asked last.
        control: the tokenizer's control tokens as text.
    """
    own = _find_control_tokens_and_role_markers(
        text, control
    ) - _find_control_tokens_and_role_markers(f"{reference}\n{question}", control)
    turns = {marker for marker in _TURN_BEGINNING.findall(text) if marker not in question}
    return tuple(sorted(own | (turns & _find_control_tokens_and_role_markers(text, ()))))


def _find_control_tokens_and_role_markers(text: str, control: Collection[str]) -> set[str]:
    """Control tokens of this tokenizer and of other templates anywhere, and role markers that begin a line."""
    # The tokenizer's own tokens count in code as well: as text they are never written by chance.
    prose = _STRUCK_OUT.sub(" ", _CODE.sub(" ", text))
    foreign = set(_CONTROL_TOKEN.findall(prose))
    roles = {match[1].strip().replace("*", "") for match in _ROLE_AT_LINE_START.finditer(text)}
    return (
        roles
        | _role_names_without_control_tokens(text)
        | foreign
        | {token for token in control if token in text}
    )


def _role_names_without_control_tokens(text: str) -> set[str]:
    """`user` and `assistant` alone on their lines, or the answer's own header at its beginning: what is left of a
    template whose control tokens were not decoded."""
    roles = set(_ROLE_ALONE.findall(text))
    first = text.lstrip().partition("\n")
    # The header of its own turn: an answer of one word is none, and so is a heading that says more than the role.
    header = {first[0].strip()} & _HEADER_ROLES if first[2].strip() else set()
    return header | (roles if "user" in roles and len(roles) > 1 else set())


def _word_f1(words: list[str], reference_words: list[str]) -> float:
    """F1 over the words of both, as often as they stand there (as SQuAD, but articles count; Chinese, Japanese and the
    like by characters)."""
    shared = sum((Counter(words) & Counter(reference_words)).values())
    if not shared:
        return float(words == reference_words)
    return 2 * shared / (len(words) + len(reference_words))


def _do_parsed_readings_agree(parse: Parser | None, text: str, reference: str) -> bool | None:
    """Does the parser read of both the same? None without a parser, or where it reads nothing of a reference that is no
    bare value."""
    if parse is None:
        return None
    # Of the reference first: where that is not readable, the parser is the fault and not the answer.
    expected = try_parse(parse, reference)
    if expected is not None:
        return are_readings_equal_and_not_none(try_parse(parse, text), expected)
    value = value_of_bare_text(reference)
    return (
        None
        if value is None
        else parsed_answer_as_number_or_letter(try_parse(parse, text)) == value
    )
