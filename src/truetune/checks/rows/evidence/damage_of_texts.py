r"""Damage that a text suffered on its way into the rows: spaces, line ends, letters and marks that were lost or added.

Each kind compares a text with itself, so that a style is no damage: sentences that begin in capitals beside a first
one that does not, numbers of a list without one line end, words that are there twice in a row. Code and formulas are
left out. Measured on 5,000 answers of published sets (LLaMA-Factory's and tinker-cookbook's), where each kind is in
less than 1 of 200, and most are in none. The trade-off: a text that is damaged in one place is passed over where
people write such a place by mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from truetune.checks.patterns_telling_code_from_prose import CODE, LOOKS_LIKE_CODE
from truetune.checks.rows.evidence import outputs_of_failed_scripts as failed
from truetune.checks.rows.evidence import remains_of_programs as remains
from truetune.generation.repetition_loops import is_looping

SHOWN_CHARACTERS = 30
MIN_PLACES = 2
"""Of one kind in a text"""
MIN_WORDS_OF_PROSE = 12
"""Words of a text whose sentences are compared with each other"""
MAX_TEXT = 20_000
"""Characters of a text that are looked at. Chosen: damage is all over a text, and searches take time"""
ENDS_SENTENCE = re.compile(r"[a-z\d)\"'\u201d][.!?][\"')\u201d]*\s+[A-Z\"'(\u201c]")
# Three letters, and not all of the word: a long one would be read again from each of its letters.
JOINED_SENTENCES = re.compile(r"[a-z]{3}[.!?][A-Z][a-z]*[ ,][a-z]")
# Items that end in a mark are how people write a list in a sentence.
NUMBERED_IN_ONE_LINE = re.compile(
    r"(?:^|[\s:])1[.)] [^\Wa-z].{2,600}?[^\s.;,:!?)] 2[.)] [^\Wa-z].{2,600}?[^\s.;,:!?)] 3[.)] \S"
)
BULLETS_IN_ONE_LINE = re.compile(r"(?:[.:;] |\A)([-*\u2022]) \w.{2,300}? \1 \w.{2,300}? \1 \w")
SPACE_BEFORE_MARK = re.compile(r"[^\W\d_]{2,}[ \t]+[.,](?=\s|\Z)")
MARK_AFTER_WORD = re.compile(r"[^\W\d_]{2,}[.,](?=\s|\Z)")
DOUBLED_WORD = re.compile(r"\b([^\W\d_]{2,}) \1\b(?!-)")
MAY_BE_DOUBLED = frozenset(
    ("that", "had", "is", "very", "so", "no", "yes", "ha", "haha", "really", "many", "much", "far", "long", "big",
     "bye", "blah", "knock", "more", "well", "now", "there", "her", "you", "in", "on", "it", "nous", "vous", "sie",
     "der", "die", "das", "que")
)  # fmt: skip
"""Words that sentences hold twice in a row"""
MIN_DOUBLED_SHARE = 0.02
"""Of the words of a text. Prose has less than 0.001"""
NUMBERLESS_ITEM = re.compile(r"^[ \t]*[.)] [A-Z]", re.MULTILINE)
MARK = re.compile(r"[.,;:!?\u2026\u0964\u3002\u3001\uff0c\u060c\u061b\u061f\u0589\u1362]")
LONG_WORD = re.compile(r"\w{25,}")
MIN_WORDS_WITHOUT_MARK = 30
"""Words of a text without any mark: titles and keywords are shorter"""
MIN_DIFFERENT_WORDS_WITHOUT_MARK = 15
"""Different words of such a text. Chosen: prose of 30 words has 20 and more, and a repeated word is one"""
MIN_LOOP_CHARACTERS = 150
"""Characters of an answer that is searched for a loop: a sampler's loop ends at its limit, and shorter ones are a
laugh or a line of sounds"""
SENTENCE_IN_SMALL_LETTERS = re.compile(r"[a-z][.!?] +[a-z]{2,}")
# `two- and three-way` is written so; the line end may have become a space.
SPLIT_AT_LINE_END = re.compile(
    r"[a-z]{2,}-(?:\n[ \t]*| )(?!(?:and|or|to|und|oder|bis|et|ou|y|o|e|ed|en|of)\b)[a-z]{2,}"
)
CODE_IN_ONE_LINE = re.compile(
    r"```\w*[ \t](?=[^\n`]{40})[^\n`]*?"
    r"(?:\b(?:def|class|for|while|if|else|with|try)\b[^\n`:]*:[ \t]+[\w\"']|\{[ \t][^\n`}]*;[ \t]*\})[^\n`]*```"
)
"""A block of code whose statements follow each other in one line"""
NO_BREAK_SPACE = "\u00a0"
MIN_NO_BREAK_SHARE = 0.5
"""Of the spaces of a text. French has them before marks, at most one space in six"""
INVISIBLE_IN_WORD = re.compile("[a-zA-Z][\u00ad\u200b\u2060\ufeff]+[a-zA-Z ]|[ \u200b]\u200b")
MIXED_ALPHABETS = re.compile(r"\b(?:[A-Za-z]+[\u0400-\u04ff]|[\u0400-\u04ff]+[A-Za-z])\w*")
FULL_WIDTH = re.compile("[\uff21-\uff3a\uff41-\uff5a]{2,}")
EAST_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
ESCAPED_MARK = re.compile(r"(?<=[\w)\"'*])\\[.\-!](?=\s|\w|\Z)|(?<=\n)\\[-#*]")
COMMAND = re.compile(r"\\[A-Za-z]{2,}|\\[dws][+*{]")
"""Of LaTeX, or of a pattern: there a backslash before a mark is right"""
DOUBLED_QUOTES = re.compile(r'(?:^|[\s(])""\w[^"\n]{0,200}\w[.,!?]?""')
FIRST_WORD = re.compile(r"\s*([a-z]+)(?=[ ,.;:!?])(?! ?=)")
NAMES_IN_SMALL_LETTERS = re.compile(
    r"i(?:Phone|Pad|OS|Tunes|Cloud)|eBay|npm|pip|git|https?|www|e\.g|i\.e|def|import|x"
)
ENDS_LINE = ".!?:;)\"'*\u2026\u201d"
LAST_WORDS = re.compile(r"(?:^|[.!?:;]\s)((?:[^\s.!?:;]+[ \t]+){5,}[^\s.!?:;]*[^\W\d_])\s*\Z")
# A place of an array (`values[1]`) is after one word again and again.
REFERENCE_MARK = re.compile(r"([a-z]{4,}[.,)]?)\[\d{1,2}\](?=[\s.,;:)\[]|\Z)")
LIST_OF_REFERENCES = re.compile(
    r"^\s*\[\d{1,2}\]|^\W*(?:references|sources|bibliography|citations)\b", re.I | re.M
)
NUMBER_IN_FRONT = re.compile(r"\A\s*(?:Q|A|#|No\. ?|Question |Answer )?(\d{1,5})[.):]\s+[^\W\d_]")
MIN_NUMBER, MAX_NUMBER = 32, 999
"""Smaller ones may be an option's number or a day of the month (`3. Mai`), larger ones years, amounts or numbers
of orders that a reply begins with"""
# Words that an answer may have in a line of its own (`Save`, `Score: 7`, as graders write) are left out.
LINE_OF_PAGE = re.compile(
    r"(?:page|seite|p\u00e1gina) \d+(?: (?:of|/|von|de) \d+)?|copy(?: code| to clipboard)?"
    r"|regenerate(?: response)?|sent from my \w+(?: \w+)?|was this (?:answer )?helpful\?"
    r"|(?:read|show|see|load) (?:more|less)(?: comments)?|print this page|back to top|add a comment"
    r"|(?:share|follow|report|reply to|like|save) this (?:post|answer|comment|page)|upvote|downvote"
    r"|[\d.,]+k? (?:likes?|views?|comments?|upvotes?|shares?|replies|votes?)"
    r"|\d+ (?:minutes?|hours?|days?|months?|years?) ago"
    r"|skip to (?:main )?content|accept (?:all )?cookies|advertisement|all rights reserved\.?",
    re.IGNORECASE,
)
MIN_REPEATED_CHARACTERS = 40
# Each form is told from what people write: two pairs of brackets around more than a word of prose, numbers or signs of
# a program in marks of quotation, a note that is glued to the end of a sentence or a heading.
MACHINE_MARK = re.compile(
    r"<<(?=[^<>\n]*[=|_#@])[^\s<>][^<>\n]{1,80}>>"
    r"|\[\[[^\W\d_][^\[\]\n]{2,80}\]\]"
    r"|\{\{[^{}\n]{1,80}(?:::|\|)[^{}\n]{0,80}\}\}"
    r"|\u3010\d[^\u3010\u3011\n]{0,60}\u3011|[\ue000-\uf8ff]"
    r"|(@@|%%|\u00a7\u00a7)[^\s@%\u00a7][^@%\u00a7\n]{0,60}\1"
    r"|\[[A-Z]{3,}_\d{1,3}\]|__[A-Z]{3,}(?:_\d{1,3})?__"
    r"|:\w+\[\w+:\d+\]|turn\d+[a-z]+\d+|\[\^\d{1,3}\^\]|</?ref\b[^<>\n]{0,80}>"
    r"|(?<=[.!?])[\"')\u201d]?\[[^\W\d_][^\W\d_ |]{1,20}[^\W\d_][ |]*[^\W\d_ ]*\](?=\s|\Z)"
    r"|^(?:[A-Z\u00c0-\u00de][\w'-]*)(?: [\w'-]{1,20}){0,6}\[[^\W\d_][^\[\]\n\d_.,]{3,40}\][ \t]*$",
    re.MULTILINE,
)
"""What programs write into texts for programs: calculator annotations (`<<48/2=24>>`), links and edit marks of wikis,
citation marks, characters of private use, names of an anonymiser"""
MAY_ASK_FOR_MARKS = re.compile(
    r"<<|\[\[|\{\{|\u3010|@@|%%|\u00a7\u00a7|\[\^|\[[A-Za-z]|__[A-Z]|</?ref\b"
    r"|jinja|liquid|handlebars|mustache|\btemplat"
    r"|annotat|\bcit(?:e|ation|ing)|markup|mark-up|\bwiki|placeholder|anonymi|redact|cloze|flash ?card|footnote"
    r"|\btags?\b|\blinks?\b|bracket",
    re.I,
)

# What a prompt asks for, or explains, is no damage of the answer.
SOURCES = re.compile(
    r"\[\d{1,2}\]|\b(?:documents?|docs?|sources?|passages?|contexts?|references?|results?)\W{0,3}\d",
    re.I,
)
UNFINISHED = re.compile(
    r"\b(?:complete|continue|finish|fill in|rest of)\b"
    r"|(?:,|\.\.\.|\u2026|\b(?:is|are|was|the|an?|to|of|and|because|that|with|for|in|on))\s*\Z",
    re.I,
)
NUMBERED_OPTIONS = re.compile(r"\b\d{1,3}[.)]\s\S.*?\b\d{1,3}[.)]\s\S", re.DOTALL)
ASKS_FOR_SMALL_LETTERS = re.compile(r"lower.?case|small letters|no capitals", re.I)
ASKS_FOR_NO_MARKS = re.compile(r"punctuat|transcri|speech|caption|key ?words?", re.I)
NUMBER_WORDS = (
    "two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty|forty|fifty|hundred"
)
ASKS_FOR_REPETITION = re.compile(
    r"repeat|twice|again|double|stutter|over and over|in a row|refrain|chorus|mantra|\bchant"
    r"|\bsongs?\b|lyrics|nursery"
    rf"|\b(?:\d[\d,]{{0,11}}|{NUMBER_WORDS})(?: (?:lines|copies)\b|[ -]times\b(?! (?:\d|as\b|more\b|larger\b|the\b)))"
    r"|(?:per|for each|on each|in each) (?:line|row)|\bfill (?:a|the|\d+) (?:page|line|board)|bar chart"
    r"|wiederhol|\b\d+[ -]?mal\b|r[e\u00e9]p[e\u00e8\u00e9]t|\b\d+ fois\b|repit|repet|\b\d+ (?:veces|vezes|volte)\b"
    r"|\u91cd\u590d|\d+\s?(?:\u904d|\u6b21|\u56de)|\u7e70\u308a\u8fd4|\u043f\u043e\u0432\u0442\u043e\u0440",
    re.I,
)
"""Also in German, French, Spanish, Portuguese, Italian, Chinese, Japanese and Russian"""
ASKS_FOR_ONE_LINE = re.compile(r"(?:one|single) line|no (?:line|new)", re.I)


class DamageKind(NamedTuple):
    """One kind of damage, and how it is undone."""

    name: str
    find: Callable[[str], int | None]
    """The character of a text at which the damage is seen; None where it has none"""
    remedy: str
    shares: tuple[float, float] = (0.03, 1.0)
    """Of the answers of a set, from which on it is damage and up to which. In 47 sound sets no kind of these bounds is
    in more than 1 of 100 answers"""
    meant: re.Pattern[str] | None = None
    """What a prompt holds that explains it, or asks for it"""


class Damage(NamedTuple):
    """What happened to one text."""

    kind: DamageKind
    excerpt: str


def find_damage(text: str, prompt: str = "") -> Damage | None:
    """Find the first kind of damage in a text.

    Args:
        text: of an answer.
        prompt: all that comes before it, in which damage may be asked for, or have its reason.

    Returns:
        None where nothing was found. Of code, its lines are judged; formulas are not.
    """
    # A word for each piece of code: its place must not look like a word that was left out.
    prose = CODE.sub("code", text[:MAX_TEXT])
    return _first_damage(CODE_DAMAGE_KINDS, text[:MAX_TEXT], prompt) or _first_damage(
        (*REMAINS_KINDS, *DAMAGE_KINDS), prose, prompt
    )


def _first_damage(kinds: tuple[DamageKind, ...], text: str, prompt: str) -> Damage | None:
    """The first of these kinds of damage in a text that its prompt does not explain."""
    for kind in kinds:
        place = kind.find(text)
        if place is not None and not (kind.meant and kind.meant.search(prompt)):
            begin = max(0, place - SHOWN_CHARACTERS)
            return Damage(kind, text[begin : place + SHOWN_CHARACTERS].strip())
    return None


def _position_of_first_match_if_many(places: Iterator[re.Match[str]]) -> int | None:
    """Where the first of MIN_PLACES matches or more begins; None where there are fewer."""
    first = next(places, None)
    if first is None or sum(1 for _ in places) + 1 < MIN_PLACES:
        return None
    return first.start()


def _position_of_code_in_one_line(text: str) -> int | None:
    """A block of several statements in one line."""
    match = CODE_IN_ONE_LINE.search(text) if "```" in text else None
    return None if match is None else match.start()


def _position_of_joined_sentences(text: str) -> int | None:
    """Sentences that follow without a space, in a text that separates hardly any."""
    joined = list(JOINED_SENTENCES.finditer(text))
    apart = sum(1 for _ in ENDS_SENTENCE.finditer(text))
    return _begin_of_word(text, joined[0].start()) if joined and len(joined) > apart else None


def _begin_of_word(text: str, place: int) -> int:
    """Where the word in small letters begins that holds this place."""
    while place > 0 and "a" <= text[place - 1] <= "z":
        place -= 1
    return place


def _position_of_lost_line_breaks(text: str) -> int | None:
    """Where a list of numbers or bullets begins in a text that is one long line; None without one."""
    if "\n" in text.strip():
        return None
    for pattern in (NUMBERED_IN_ONE_LINE, BULLETS_IN_ONE_LINE):
        match = pattern.search(text)
        if match is not None:
            return match.start()
    return None


def _position_of_space_before_punctuation(text: str) -> int | None:
    """Full stops and commas after a space: words that were joined by spaces, or left out before a mark."""
    if " ." not in text and " ," not in text:
        return None
    apart = list(SPACE_BEFORE_MARK.finditer(text))
    if len(apart) < MIN_PLACES or len(apart) <= sum(1 for _ in MARK_AFTER_WORD.finditer(text)):
        return None
    return apart[0].start()


def _position_of_lost_list_numbers(text: str) -> int | None:
    """Lines that begin with the full stop or bracket that was after a number."""
    return _position_of_first_match_if_many(NUMBERLESS_ITEM.finditer(text))


def _position_of_text_without_punctuation(text: str) -> int | None:
    """A long text of one line without any mark."""
    words = text.split()
    is_short = (
        len(words) < MIN_WORDS_WITHOUT_MARK or len(set(words)) < MIN_DIFFERENT_WORDS_WITHOUT_MARK
    )
    if is_short or "\n" in text.strip() or MARK.search(text) or LONG_WORD.search(text):
        return None
    # Scripts without capitals (Thai) write sentences without marks.
    cased = sum(char.lower() != char.upper() for char in text)
    return 0 if 2 * cased > sum(map(str.isalpha, text)) else None


def _position_of_lost_capitals(text: str) -> int | None:
    """Sentences that all begin in small letters, in a text without a capital."""
    if text != text.lower() or len(text.split()) < MIN_WORDS_OF_PROSE:
        return None
    return _position_of_first_match_if_many(SENTENCE_IN_SMALL_LETTERS.finditer(text))


def _position_of_doubled_words(text: str) -> int | None:
    """Many different words that are there twice in a row."""
    doubled = [one for one in DOUBLED_WORD.finditer(text) if one[1].lower() not in MAY_BE_DOUBLED]
    different = {one[1].lower() for one in doubled}
    if len(different) < MIN_PLACES or len(doubled) < MIN_DOUBLED_SHARE * len(text.split()):
        return None
    return doubled[0].start()


def _position_of_words_split_at_line_end(text: str) -> int | None:
    """Words with a hyphen and a line end in the middle, as pages are printed."""
    if "-\n" not in text and "- " not in text:
        return None
    return _position_of_first_match_if_many(SPLIT_AT_LINE_END.finditer(text))


def _position_of_no_break_spaces(text: str) -> int | None:
    """No-break spaces for most of the spaces between words."""
    count = text.count(NO_BREAK_SPACE)
    if count < MIN_PLACES or count < MIN_NO_BREAK_SHARE * (count + text.count(" ")):
        return None
    return text.index(NO_BREAK_SPACE)


def _position_of_invisible_characters(text: str) -> int | None:
    """Characters without a width between the letters of words."""
    if text.isascii():
        return None
    return _position_of_first_match_if_many(INVISIBLE_IN_WORD.finditer(text))


def _position_of_words_of_mixed_alphabets(text: str) -> int | None:
    """Words of Latin and Cyrillic letters that look alike."""
    if text.isascii():
        return None
    return _position_of_first_match_if_many(MIXED_ALPHABETS.finditer(text))


def _position_of_full_width_letters(text: str) -> int | None:
    """Latin words in the full width of East Asian texts, in a text of none."""
    if text.isascii() or EAST_ASIAN.search(text):
        return None
    return _position_of_first_match_if_many(FULL_WIDTH.finditer(text))


def _position_of_escaped_punctuation(text: str) -> int | None:
    """Backslashes before full stops and hyphens, as converters to Markdown write them."""
    if "\\" not in text or COMMAND.search(text):
        return None
    return _position_of_first_match_if_many(ESCAPED_MARK.finditer(text))


def _position_of_doubled_quotes(text: str) -> int | None:
    """Quotes that a table doubled, and nobody made single again."""
    match = DOUBLED_QUOTES.search(text) if '""' in text else None
    return None if match is None else match.start()


def _position_of_mid_sentence_beginning(text: str) -> int | None:
    """A small letter in front, of a text whose other sentences begin with capitals."""
    first = FIRST_WORD.match(text)
    if first is None or NAMES_IN_SMALL_LETTERS.fullmatch(first[1]):
        return None
    if len(text.split()) < MIN_WORDS_OF_PROSE:
        return None
    return 0 if sum(1 for _ in ENDS_SENTENCE.finditer(text)) >= MIN_PLACES else None


def _position_of_mid_sentence_ending(text: str) -> int | None:
    """No mark after the last words, of a text of prose whose other sentences have one."""
    *lines, last_line = text.strip().split("\n")
    last = LAST_WORDS.search(last_line)
    if last is None or sum(1 for _ in ENDS_SENTENCE.finditer(text)) < MIN_PLACES:
        return None
    # Verses and lists have no mark at the ends of their other lines either.
    whole_lines = [line for line in lines if line.strip()]
    marked = sum(line.rstrip()[-1] in ENDS_LINE for line in whole_lines)
    return len(text) - len(last[1]) if 2 * marked >= len(whole_lines) else None


def _position_of_repeated_second_half(text: str) -> int | None:
    """A text that is the same in both halves."""
    bare = text.strip()
    half = len(bare) // 2
    if half < MIN_REPEATED_CHARACTERS:
        return None
    return half if bare[:half].strip() == bare[-half:].strip() else None


def _position_of_sampling_loop(text: str) -> int | None:
    """Words that come again and again, as a model writes that is caught in a loop until the limit of its answer."""
    if len(text) < MIN_LOOP_CHARACTERS or not is_looping(text, cut=False):
        return None
    return len(text)


def _position_of_references_without_sources(text: str) -> int | None:
    """Numbers of sources in brackets, in a text that names no source and is no code without fences (`hand[0]`)."""
    if "[" not in text or LIST_OF_REFERENCES.search(text) or LOOKS_LIKE_CODE.search(text):
        return None
    marks = {one[1]: one.start() for one in REFERENCE_MARK.finditer(text)}
    return min(marks.values()) if len(marks) >= MIN_PLACES else None


def _position_of_stray_list_number(text: str) -> int | None:
    """A number in front, of a text that has no second number and is not the first of a list."""
    first = NUMBER_IN_FRONT.match(text)
    if first is None:
        return None
    number = int(first[1])
    if not MIN_NUMBER <= number <= MAX_NUMBER:
        return None
    following = re.search(rf"\n\s*\W*{number + 1}[.):]", text)
    return None if following else 0


def _position_of_machine_marks(text: str) -> int | None:
    """Marks that one program wrote for another, in a text that is no code."""
    match = MACHINE_MARK.search(text)
    return None if match is None or LOOKS_LIKE_CODE.search(text) else match.start()


def _position_of_web_page_lines(text: str) -> int | None:
    """Lines that a page or an app has around its texts: buttons, page numbers, counts."""
    lines = text.strip().split("\n")
    # A text of one such line is an answer: a label, or what a button says.
    if len(lines) < MIN_PLACES:
        return None
    place = 0
    for line in lines:
        if line and LINE_OF_PAGE.fullmatch(line.strip(" *_|\u00b7")):
            return place
        place += len(line) + 1
    return None


# Speech without marks, and texts that all lack them on purpose, are sets of their own.
PART_OF_SET = (0.03, 0.6)
# Definitions begin in small letters, and titles end without a mark: up to 0.1 of the answers of sound sets of
# documentation, and in sets of that style nearly all.
LARGE_PART_OF_SET = (0.12, 0.6)
EXPORT = "build these texts again: "
CODE_DAMAGE_KINDS = (
    DamageKind(
        "code without line breaks",
        _position_of_code_in_one_line,
        EXPORT + "keep the line breaks and the indentation (no ' '.join(text.split()))",
        meant=ASKS_FOR_ONE_LINE,
    ),
    DamageKind(
        "code without indentation",
        remains.position_of_lost_indentation,
        EXPORT + "keep the indentation (no strip() of single lines)",
    ),
    DamageKind(
        "both sides of a merge conflict",
        remains.position_of_conflict,
        "drop these files, or resolve the conflict",
        meant=remains.ABOUT_CONFLICTS,
    ),
    DamageKind(
        "line numbers or plus signs of a listing",
        remains.position_of_listing_marks,
        "remove the numbers or plus signs at the beginning of each line in the script that makes the rows",
        meant=remains.ABOUT_LISTINGS,
    ),
    DamageKind(
        "prompts of an interpreter on all lines",
        remains.position_of_session_marks,
        "remove `>>> ` and `... ` (In [1]:) from the lines in the script that makes the rows",
        meant=remains.ABOUT_SESSIONS,
    ),
    DamageKind(
        "a loop of the same words",
        _position_of_sampling_loop,
        "drop these answers, or sample them again (a higher temperature, a repetition penalty)",
        meant=ASKS_FOR_REPETITION,
    ),
    DamageKind(
        "error messages instead of answers",
        failed.position_of_error_message,
        "drop these answers and ask again: the script that made the rows wrote the error of a request as its answer",
        meant=failed.ABOUT_ERRORS,
    ),
    DamageKind(
        "formulas that never close",
        failed.position_of_open_formula,
        EXPORT + "keep both signs of each formula ($, \\( and \\), \\[ and \\])",
        meant=failed.ABOUT_FORMULAS,
    ),
)
"""Of whole answers with their code, in the order in which they are looked for"""
REMAINS_KINDS = (
    DamageKind(
        "objects as a program prints them",
        failed.position_of_printed_object,
        "write the content of the object (message.content, value.item(), row['output']) in the script that makes the"
        " rows, not str() of it",
        meant=failed.ABOUT_OBJECTS,
    ),
    DamageKind(
        "formulas without their backslashes",
        failed.position_of_lost_backslash,
        EXPORT + "keep the backslashes (raw strings, json.dumps, no replace of '\\\\')",
        meant=failed.ABOUT_FORMULAS,
    ),
    DamageKind(
        "Arabic or Hebrew words written backwards",
        failed.position_of_backward_words,
        EXPORT
        + "extract the text of the pages in logical order, without a step that turns it for display (python-bidi)",
    ),
    DamageKind(
        "accents that are characters of their own",
        failed.position_of_decomposed_letters,
        "normalise the texts: unicodedata.normalize('NFC', text)",
    ),
    DamageKind(
        "ids and emoji names of a chat program",
        remains.position_of_chat_marks,
        "write names for the ids (<@U01AB2CD3>) and characters for the emoji names, or remove them",
        meant=remains.ABOUT_CHAT_MARKS,
    ),
    DamageKind(
        "a time and a name in front",
        remains.position_of_time_and_speaker,
        "remove the time and the speaker's name in front of each message",
        meant=remains.ABOUT_TIMES,
    ),
    DamageKind(
        "an older mail below the answer",
        remains.position_of_quoted_mail,
        "cut each mail at the head of the mail that it quotes (On ... wrote:), and its signature",
        meant=remains.ABOUT_QUOTED_MAIL,
    ),
    DamageKind(
        "marks of an anonymiser instead of names",
        remains.position_of_anonymised_name,
        "write made-up names and numbers in their place (Faker, Presidio's operator `replace`)",
        meant=remains.ABOUT_ANONYMISED,
    ),
    DamageKind(
        "notices of a chat program",
        remains.position_of_notice,
        "drop the messages that the program itself wrote (who joined, status, automatic replies)",
        meant=remains.ABOUT_NOTICES,
    ),
    DamageKind(
        "pieces of tokens, or the unknown token",
        remains.position_of_token_pieces,
        EXPORT + "take the raw texts, or decode ids with tokenizer.decode()",
        meant=remains.ABOUT_TOKENS,
    ),
    DamageKind(
        "words whose letters are apart",
        remains.position_of_letters_apart,
        EXPORT + "extract the text of these pages with another tool, or drop them",
        meant=remains.ABOUT_LETTERS,
    ),
    DamageKind(
        "question marks instead of letters",
        remains.position_of_lost_letters,
        EXPORT + "read and write the texts as UTF-8, never with errors='replace'",
        meant=remains.ABOUT_QUESTION_MARKS,
    ),
    DamageKind(
        "several candidates in one answer",
        remains.position_of_several_candidates,
        "keep one of the candidates in each row",
        meant=remains.ABOUT_CANDIDATES,
    ),
    DamageKind(
        "another task after the answer",
        remains.position_of_next_task,
        "cut each answer before the next task, and sample with a stop sequence for it",
        meant=remains.ABOUT_TASKS,
    ),
    DamageKind(
        "times and sounds of captions",
        remains.position_of_captions,
        "remove the times and the sounds in brackets in the script that makes the rows",
        meant=remains.ABOUT_CAPTIONS,
    ),
    DamageKind(
        "letters that are shaped for print",
        remains.position_of_ligatures,
        "normalise the texts: unicodedata.normalize('NFKC', text)",
    ),
    DamageKind(
        "tables in one line",
        remains.position_of_table_in_a_line,
        EXPORT + "keep the line breaks (no ' '.join(text.split()))",
        meant=ASKS_FOR_ONE_LINE,
    ),
    DamageKind(
        "single words in bold all over the text",
        remains.position_of_bold_words,
        "remove the asterisks in the script that makes the rows: re.sub(r'\\*\\*', '', text)",
    ),
    DamageKind(
        "all in capitals",
        remains.position_of_capitals,
        EXPORT + "do not call upper() on the answers, unless you want that style",
        PART_OF_SET,
        meant=remains.ABOUT_CAPITALS,
    ),
)
"""What programs left in prose, in the order in which it is looked for"""
DAMAGE_KINDS = (
    DamageKind(
        "annotations for a program",
        _position_of_machine_marks,
        "remove the annotations in the script that makes the rows: re.sub(r'<<[^<>]*>>', '', text), or what their form"
        " is",
        meant=MAY_ASK_FOR_MARKS,
    ),
    DamageKind(
        "sentences without a space between",
        _position_of_joined_sentences,
        EXPORT + "insert a space or a line break wherever tags or line breaks are removed",
    ),
    DamageKind(
        "lists without line breaks",
        _position_of_lost_line_breaks,
        EXPORT + "keep the line breaks (no ' '.join(text.split()), no replace of '\\n')",
        meant=ASKS_FOR_ONE_LINE,
    ),
    DamageKind(
        "spaces before punctuation",
        _position_of_space_before_punctuation,
        EXPORT
        + "do not join tokens with spaces, and check what was cut out before the punctuation",
    ),
    DamageKind(
        "lists without their numbers",
        _position_of_lost_list_numbers,
        EXPORT + "do not remove digits",
    ),
    DamageKind(
        "no punctuation at all",
        _position_of_text_without_punctuation,
        EXPORT + "do not remove punctuation from the answers",
        PART_OF_SET,
        meant=ASKS_FOR_NO_MARKS,
    ),
    DamageKind(
        "no capitals at all",
        _position_of_lost_capitals,
        EXPORT + "do not call lower() on the answers, unless you want that style",
        meant=ASKS_FOR_SMALL_LETTERS,
    ),
    DamageKind(
        "words that occur twice in a row",
        _position_of_doubled_words,
        EXPORT + "check the script for overlapping chunks or merged captions",
        meant=ASKS_FOR_REPETITION,
    ),
    DamageKind(
        "words that are split at line ends",
        _position_of_words_split_at_line_end,
        EXPORT + "rejoin words hyphenated at a line end, and the lines of a paragraph",
    ),
    DamageKind(
        "no-break spaces instead of spaces",
        _position_of_no_break_spaces,
        "replace them: text.replace('\\u00a0', ' ')",
    ),
    DamageKind(
        "invisible characters inside words",
        _position_of_invisible_characters,
        "remove them: re.sub('[\\u00ad\\u200b\\u2060\\ufeff]', '', text)",
    ),
    DamageKind(
        "letters of two alphabets in one word",
        _position_of_words_of_mixed_alphabets,
        "map lookalike letters to one alphabet, or drop these rows",
    ),
    DamageKind(
        "full-width Latin letters",
        _position_of_full_width_letters,
        "normalise the texts: unicodedata.normalize('NFKC', text)",
    ),
    DamageKind(
        "punctuation with a backslash",
        _position_of_escaped_punctuation,
        "remove the backslashes: re.sub(r'\\\\([.!-])', r'\\1', text), or convert without escapes",
    ),
    DamageKind(
        "quotes that a table doubled",
        _position_of_doubled_quotes,
        EXPORT + 'read the table with a CSV reader (csv, pandas), which makes "" one quote',
    ),
    DamageKind(
        "beginnings inside a sentence",
        _position_of_mid_sentence_beginning,
        EXPORT + "check at which character the prompt or a prefix is cut off",
        LARGE_PART_OF_SET,
        meant=UNFINISHED,
    ),
    DamageKind(
        "ends inside a sentence",
        _position_of_mid_sentence_ending,
        EXPORT + "check what cuts the end (a removed last word, a slice of characters)",
        LARGE_PART_OF_SET,
    ),
    DamageKind(
        "the same text twice",
        _position_of_repeated_second_half,
        "keep one of the two halves, and correct the script that joined them",
        meant=ASKS_FOR_REPETITION,
    ),
    DamageKind(
        "source numbers without sources",
        _position_of_references_without_sources,
        "remove the numbers: re.sub(r'\\[\\d+\\]', '', text), or keep the list of sources",
        meant=SOURCES,
    ),
    DamageKind(
        "list numbers in front of the rows",
        _position_of_stray_list_number,
        "remove the leading number in the script that makes the rows",
        meant=NUMBERED_OPTIONS,
    ),
    DamageKind(
        "lines of a page or an app",
        _position_of_web_page_lines,
        "remove these lines in the script that makes the rows",
    ),
)
"""Of prose, in the order in which they are looked for; of a text the first is counted"""
