r"""What a script wrote instead of an answer, or did to its letters: printed objects, error messages, formulas without
backslashes, letters in the wrong order.

Each is told by a form that people do not write: the attributes of a class, the sentence of a server, a command of LaTeX
with its brace and no backslash, a letter at the beginning of a word that its script has at ends alone.
"""

from __future__ import annotations

import re
import unicodedata

MIN_PLACES = 2
"""Of a form in a text"""
PRINTED_OBJECT = re.compile(
    r"additional_kwargs=\{|response_metadata=\{"
    r"|\b[A-Z]\w{1,40}(?:Message|Block|Part|Chunk|Choice|Document)\((?:content|text|id|role|page_content|finish_reason)="
    r"|\bName: \w+, (?:Length: \d+, )?dtype: \w+|^dtype: \w+$|\[\d+ rows x \d+ columns\]"
    r"|\btensor\(\[{0,4}-?\d[^()\n]{0,200}\)|\barray\(\[|<[\w.]{1,60} object at 0x[0-9a-f]+>"
    r"|<(?:bound method|generator object|class '|coroutine object|function \w+ at 0x)|\[object [A-Z]\w+\]"
    r"|\bDecimal\('|\b(?:datetime\.)?datetime\(\d{4}, |\bTimestamp\('|\bOrderedDict\(\[|\bnp\.(?:float|int|str)\w*\("
    r"|\bdict_(?:keys|values|items)\(\[|\bPosixPath\('|\bUUID\('",
    re.MULTILINE,
)
"""Python's and JavaScript's text of an object, where its content was meant"""
ABOUT_OBJECTS = re.compile(
    r"python|java|code|script|output|print|pandas|torch|numpy|tensor|program|function|debug|dataframe|array|object"
    r"|class|sql|query|algorithm|list|lambda|method|matrix|\bAPI\b",
    re.I,
)
ERROR_MESSAGE = re.compile(
    r"\A\W{0,3}(?:(?:An )?(?:error|exception)(?: occurred)?[: ]+[^\n]{0,60})?"
    r"(?:[\w.]*\w(?:Error|Exception): |Error code: \d{3}|Error: \d{3}\b|HTTP(?:Error)? \d{3}\b"
    r"|\w+Pool\(host=|Rate limit (?:reached|exceeded)|You exceeded your current quota|Request (?:timed out|was aborted)"
    r"|(?:The )?read operation timed out|Connection (?:error|aborted|refused|reset)|Too many requests"
    r"|Internal server error|(?:502|503|504) \w+|This model's maximum context length"
    r"|The server (?:had an error|is (?:overloaded|busy))"
    r"|Overloaded\b|Service (?:temporarily )?unavailable|The response was filtered|Traceback \(most recent call last\)"
    r"|Max retries exceeded|Please enable (?:JavaScript|cookies)|Checking your browser|Access denied\b"
    r"|Just a moment\.\.\.|Sorry, you have been blocked|Something went wrong\b|Failed to (?:generate|fetch|get|parse) )"
    r"|\A\s*(?:<!DOCTYPE|<html)[^`]{0,600}?<title>(?:\d{3} |Just a moment|Attention Required|Access denied|Error)"
    r"|\binsufficient_quota\b|\brate_limit_(?:exceeded|error)\b|\bcontext_length_exceeded\b|\boverloaded_error\b",
    re.I,
)
"""What a client or a server says instead of an answer"""
MAX_ERROR_CHARACTERS = 800
ABOUT_ERRORS = re.compile(
    r"error|exception|http|\bapi\b|server|time ?out|code|status|traceback|debug|bug\b|quota|rate.?limit|connect|website"
    r"|fail|log\b|crash|message",
    re.I,
)
BARE_COMMAND = re.compile(
    r"(?<![\\A-Za-z])(?:[dt]?frac|sqrt|boxed|mathbf|mathrm|mathbb|overline|overrightarrow)\{[^{}\s]"
)
COMMAND_OF_FORMULA = re.compile(
    r"\\(?:frac|sqrt|times|cdot|boxed|leq|geq|approx|sum|int|left|text|mathbf|pi|alpha)\b"
)
MAX_FORMULA_CHARACTERS = 6_000
"""Of a text whose formulas are judged: longer ones are papers, or pieces of them that may end anywhere"""
ABOUT_FORMULAS = re.compile(r"latex|\btex\b|markup|code|function|macro|katex|mathjax", re.I)
MONEY = re.compile(r"\\?\$\d")
PAIRS_OF_FORMULA = (("\\(", "\\)"), ("\\[", "\\]"), ("\\begin{", "\\end{"))
ARABIC_WORD = re.compile(r"(?<![\u0621-\u0652])[\u0621-\u0652]{3,}")
HEBREW_WORD = re.compile(r"(?<![\u05d0-\u05ea])[\u05d0-\u05ea]{2,}")
AT_ENDS_ALONE = frozenset("\u0629\u0649\u05da\u05dd\u05df\u05e3\u05e5")
"""Letters that stand at the end of a word and nowhere else: ta marbuta, alef maksura, the final forms of Hebrew"""
MIN_BACKWARD_SHARE = 0.05
"""Of the words of a text: one in six Arabic words ends in ta marbuta"""
DECOMPOSED = re.compile("[A-Za-z][\u0300-\u0304\u0306-\u030c\u0323\u0327\u0328]")


def position_of_printed_object(text: str) -> int | None:
    """The text that a program prints for an object."""
    has_sign = any(sign in text for sign in ("(", "[", "<", "={", "dtype"))
    match = PRINTED_OBJECT.search(text) if has_sign else None
    return None if match is None else match.start()


def position_of_error_message(text: str) -> int | None:
    """The message of a client or a server, where an answer was asked for."""
    match = ERROR_MESSAGE.search(text) if len(text) <= MAX_ERROR_CHARACTERS else None
    return None if match is None else match.start()


def position_of_lost_backslash(text: str) -> int | None:
    """Commands of a formula that lost their backslash."""
    if "{" not in text or "\\" in text:
        return None
    match = BARE_COMMAND.search(text)
    return None if match is None else match.start()


def position_of_open_formula(text: str) -> int | None:
    """The first sign of a formula that has no partner, in a text with formulas."""
    if len(text) > MAX_FORMULA_CHARACTERS or not COMMAND_OF_FORMULA.search(text):
        return None
    for begin, end in PAIRS_OF_FORMULA:
        if text.count(begin) != text.count(end):
            return max(0, text.find(begin), text.find(end))
    dollars = text.replace("\\$", "").count("$")
    return text.index("$") if dollars % 2 and not MONEY.search(text) else None


def position_of_backward_words(text: str) -> int | None:
    """Arabic or Hebrew words whose letters are in the order of the screen."""
    if text.isascii():
        return None
    words = [*ARABIC_WORD.finditer(text), *HEBREW_WORD.finditer(text)]
    backward = [word for word in words if word[0][0] in AT_ENDS_ALONE]
    if len(backward) < MIN_PLACES or len(backward) < MIN_BACKWARD_SHARE * len(words):
        return None
    return backward[0].start()


def position_of_decomposed_letters(text: str) -> int | None:
    """Letters whose accents are characters of their own."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return None
    matches = list(DECOMPOSED.finditer(text))
    return matches[0].start() if len(matches) >= MIN_PLACES else None
