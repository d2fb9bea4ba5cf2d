r"""What programs left in a text: marks of chats and mails, notices of a help desk, pieces of tokens, marks of listings.

An export, a tokenizer or an editor writes such marks for itself. Each is told by a form that people do not write, or by
being on most lines of a listing. Measured on 4,100 texts of LLaMA-Factory's sets and of Python's library: each is in at
most 1 of 300, capitals in 2 of 300 web pages. The trade-off: a mark that people write as well (`1. `) is none.
"""

from __future__ import annotations

import re
from itertools import pairwise

from truetune.checks.patterns_telling_code_from_prose import LOOKS_LIKE_CODE

MIN_PLACES = 2
"""Of a form that may be a slip or a name if it is there once"""
MIN_LINES, MOST_LINES = 4, 0.8
"""Lines of a listing, and the share of them that has a mark: a diff or a session quotes others in between"""
CHAT_MARK = re.compile(
    r"<[@#][UCWBG][A-Z0-9]{6,}(?:\|[^>\n]*)?>|<!(?:here|channel|everyone)(?:\|[^>\n]*)?>"
    r"|<[@#][!&]?\d{15,20}>|<a?:\w+:\d{15,20}>"
    r"|(?<![\w:/`]):[a-z][a-z\d]*(?:_[a-z\d]+)+:(?![\w:`])"
    r"|(?<![\w:/`]):(?:thumbsup|tada|pray|smile|wave|heart|rocket|eyes|fire|joy|sob|clap|ok|bow|sweat|slightly):(?![\w:`])"
)
"""Ids and names of emoji, as Slack's and Discord's exports have them"""
ABOUT_CHAT_MARKS = re.compile(r"emoji|slack|discord|short ?code|mention", re.I)
TIME_AND_SPEAKER = re.compile(
    r"\A\s*[\[(]?(?:\d{1,4}[./-]\d{1,2}[./-]\d{1,4},?\s+)?\d{1,2}:\d{2}(?::\d{2})?(?:\s?[AaPp]\.?[Mm]\.?)?[\])]?"
    r"(?:\s*-)?\s*[^\W\d_][\w .'-]{0,30}:\s"
)
ABOUT_TIMES = re.compile(
    r"transcri|schedul|agenda|timeline|\blogs?\b|subtitle|minutes|itinerary|timetable", re.I
)
QUOTED_MAIL = re.compile(
    r"^(?:On|Am|Le|El) [^\n]{8,120}(?:wrote|schrieb|a \u00e9crit|escribi\u00f3)[^\n]{0,60}:[ \t]*\n"
    r"|^-{2,}[ \t]*(?:Original Message|Forwarded message|Urspr\u00fcngliche Nachricht)"
    r"|^(?:From|Von): [^\n]+\n(?:Sent|Date|Gesendet|To|Datum): [^\n]+\n",
    re.MULTILINE,
)
ABOUT_QUOTED_MAIL = re.compile(r"\bthread\b|\bquot|forward|original message", re.I)
ANONYMISED = re.compile(
    r"[\[<](?:[A-Z]+[_ ])*(?:NAME|E-?MAIL|PHONE|ADDRESS|PERSON|ORGANI[SZ]ATION|LOCATION|CITY|COMPANY|ACCOUNT|SSN|"
    r"USERNAME|REDACTED|NUMBER|ORDER_ID|DATE_TIME|IBAN|PASSWORD|CUSTOMER)(?:[_ ](?:NUMBER|ADDRESS|ID))*[\]>]"
    r"|\bX{4,}\b(?=[^\n]*\bX{4,}\b)|\bXX/XX/(?:XX|\d\d){1,2}\b"
)
"""What an anonymiser writes for names and numbers"""
ABOUT_ANONYMISED = re.compile(
    r"anonymi|redact|\bmask|placeholder|template|\bPII\b|de-?identif|[\[<](?:[A-Z]+_)*NAME[\]>]|form letter",
    re.I,
)
NOTICE = re.compile(
    r"\b(?:joined|left|entered) the (?:chat|conversation|channel|room|group)\b"
    r"|\b(?:set|changed) the (?:status|priority|assignee) (?:to|from)\b"
    r"|\b(?:chat|conversation|call|session) (?:was|has been|is) (?:transferred|closed|ended|assigned|archived)\b"
    r"|\bthis is an automat(?:ed|ic) (?:message|reply|response|e-?mail|notification)"
    r"|\ban agent will be with you shortly|\bthis message was deleted"
    r"|<(?:media|image|video|sticker) omitted>|\b(?:image|video|audio|sticker|GIF) omitted\b",
    re.I,
)
MAX_NOTICE_CHARACTERS = 200
"""Of a text that is a notice: longer ones speak of it"""
ABOUT_NOTICES = re.compile(
    r"automat|notification|status|notice|system message|announce|transfer", re.I
)
# From the beginning of a word of at most 40 letters: a text without spaces would be tried from each of its letters.
PIECES = re.compile(r"(?<![^\W_])[^\W_]{2,40} ##[a-z]{1,12}\b|\u2581[^\W_]|\u0120[^\W_]|\w@@ \w")
UNKNOWN_TOKEN = re.compile(r"(?<![`\w\"'])(?:<unk>|\[UNK\]|<pad>|\[PAD\])(?![`\"'])")
ABOUT_TOKENS = re.compile(r"token|vocab|<unk>|\[UNK\]|BERT|BPE|heading|markdown", re.I)
LETTERS_APART = re.compile(r"(?<![^\s(\"'])(?:[^\W\d_] ){3,}[^\W\d_](?![^\s.,;:!?)\"'])")
ABOUT_LETTERS = re.compile(r"spell|letters?\b|acronym|anagram|character|spaced|hangman", re.I)
LOST_LETTER = re.compile(r"[^\W\d_]\?[a-z\u00df-\u00ff]")
ABOUT_QUESTION_MARKS = re.compile(r"\?\w|regex|regular expression|url|pattern|wildcard", re.I)
CANDIDATES = re.compile(
    r"^\W{0,4}(Response|Answer|Option|Version|Candidate|Output|Completion|Alternative|Variant|Draft)"
    r" ?#?(?:1|A)\W{0,4}(?:\n|:|\s-)"
    r".*?^\W{0,4}\1 ?#?(?:2|B)\W{0,4}(?:\n|:|\s-)",
    re.MULTILINE | re.DOTALL,
)
ABOUT_CANDIDATES = re.compile(
    r"options?|versions?|alternativ|several|multiple|various|variat|different|both|\b(?:two|three|four|five|\d+)\b"
    r"|compar|responses|answers|examples?|ideas|list|choices?|outputs|drafts?|questions",
    re.I,
)
NEXT_TASK = re.compile(
    r"\n[^\S\n]*(?:#+[^\S\n]*|\*\*)?(?:Instruction|Question|Input|Task|Problem|Prompt|Exercise|Q)(?: ?\d+)?(?:\*\*)?:"
    r"(?:\*\*)?\s*[^\n]{5,}\n+\s*"
    r"(?:#+\s*|\*\*)?(?:Output|Answer|Response|Solution|A)(?: ?\d+)?(?:\*\*)?:"
)
ABOUT_TASKS = re.compile(
    r"question|quiz|exercise|problems?\b|examples?|FAQ|interview|prompt|instruction|tasks?\b|Q ?& ?A|test|riddle"
    r"|dataset|dialog|conversation|flash ?card|trivia|worksheet",
    re.I,
)
CAPTION = re.compile(
    r"\[(?:music|applause|laughter|laughs|inaudible|crosstalk|silence|foreign|cheering|noise|__)\]"
    r"|^\d{1,5}\n\d{1,2}:\d{2}:\d{2}[,.]\d{3} --> |^(?:\d{1,2}:)?\d{2}:\d{2}[.,]\d{3} --> |\u266a",
    re.IGNORECASE | re.MULTILINE,
)
ABOUT_CAPTIONS = re.compile(
    r"caption|subtitle|transcri|lyric|song|music|\bSRT\b|\bVTT\b|script", re.I
)
LIGATURE = re.compile("[\ufb00-\ufb06]|[\ufb50-\ufdff\ufe70-\ufefc]{3}")
"""Of Latin prints, and the forms of Arabic letters that only a page has"""
TABLE_IN_A_LINE = re.compile(r"^(?=[^\n]*\|[ :]*-{3,}[ :]*\|)[^\n]*[^\s|:-][^\n]*$", re.MULTILINE)
BOLD_WORD = re.compile(r"\*\*[^*\s]+\*\*")
MIN_BOLD, BOLD_SHARE = 8, 0.15
"""Single words in bold, and their share of the words of a text: people mark a few"""
MIN_CAPITALS = 60
"""Letters of a text in capitals: titles and names of products are shorter"""
ABOUT_CAPITALS = re.compile(
    r"capital|upper ?case|all caps|headline|title|shout|telegram|acronym|[A-Z ]{40}", re.I
)
CONFLICT = re.compile(r"^<{7}[ \n].*?^={7}$.*?^>{7}[ \n]", re.MULTILINE | re.DOTALL)
ABOUT_CONFLICTS = re.compile(r"<{7}|conflict|merge", re.I)
NUMBERED_LINE = re.compile(r"\s*(\d{1,5})(?:[ \t]*[|:\u2502]|\t|[ \t]{2,})[ \t]?(.*)")
ABOUT_LISTINGS = re.compile(r"line numbers?|numbered|\bdiff\b|\bpatch\b|git|commit|chang", re.I)
SESSION_LINE = re.compile(r"(?:>>>|\.\.\.)(?: |$)|In \[\d+\]: |Out\[\d+\]: ")
ABOUT_SESSIONS = re.compile(
    r">>>|interactive|\bREPL\b|doctest|session|console|shell|IPython|output", re.I
)
OPENS_BLOCK = re.compile(
    r"([ \t]*)(?:async )?(?:def|class|for|while|if|elif|else|try|except|finally|with)\b[^\n#]*:[ \t]*(?:#.*)?"
)
# Without line breaks in front: with them, each of many empty lines would be tried as the beginning.
FENCE_LINE = re.compile(r"^[^\S\n]*(?:```|~~~).*$", re.MULTILINE)


def _first_of_many(pattern: re.Pattern[str], text: str, least: int = MIN_PLACES) -> int | None:
    """Where a form is first seen in a text; None where it is there fewer than `least` times."""
    matches = pattern.finditer(text)
    first = next(matches, None)
    if first is None or sum(1 for _ in matches) + 1 < least:
        return None
    return first.start()


def position_of_chat_marks(text: str) -> int | None:
    """Ids of users and names of emoji, as chat programs export them."""
    if ":" not in text and "<" not in text:
        return None
    if LOOKS_LIKE_CODE.search(CHAT_MARK.sub("", text)):
        return None
    return _first_of_many(CHAT_MARK, text, 1)


def position_of_time_and_speaker(text: str) -> int | None:
    """A time and a name in front of the text."""
    return 0 if TIME_AND_SPEAKER.match(text) else None


def position_of_quoted_mail(text: str) -> int | None:
    """The head of an older mail that an answer quotes below itself."""
    return _first_of_many(QUOTED_MAIL, text, 1)


def position_of_anonymised_name(text: str) -> int | None:
    """What an anonymiser wrote for a name."""
    return _first_of_many(ANONYMISED, text, 1)


def position_of_notice(text: str) -> int | None:
    """A notice of a chat program or a help desk that is the whole text."""
    return None if len(text) > MAX_NOTICE_CHARACTERS else _first_of_many(NOTICE, text, 1)


def position_of_token_pieces(text: str) -> int | None:
    """Pieces of words as a tokenizer writes them, or its unknown token."""
    unknown = UNKNOWN_TOKEN.search(text)
    return unknown.start() if unknown else _first_of_many(PIECES, text)


def position_of_letters_apart(text: str) -> int | None:
    """Words whose letters have spaces between them."""
    return _first_of_many(LETTERS_APART, text)


def position_of_lost_letters(text: str) -> int | None:
    """Question marks inside of words, where an encoding had no such letter."""
    if "?" not in text or "http" in text or "www." in text:
        return None
    return _first_of_many(LOST_LETTER, text, 1)


def position_of_several_candidates(text: str) -> int | None:
    """A second numbered answer after a first one."""
    return _first_of_many(CANDIDATES, text, 1)


def position_of_next_task(text: str) -> int | None:
    """Another task with its answer, after the answer."""
    return _first_of_many(NEXT_TASK, text, 1)


def position_of_captions(text: str) -> int | None:
    """Times and sounds, as captions of videos have them."""
    return _first_of_many(CAPTION, text)


def position_of_ligatures(text: str) -> int | None:
    """Letters that are joined or shaped for print."""
    return None if text.isascii() else _first_of_many(LIGATURE, text)


def position_of_table_in_a_line(text: str) -> int | None:
    """A table of Markdown whose lines were joined."""
    return _first_of_many(TABLE_IN_A_LINE, text, 1) if "--" in text and "|" in text else None


def position_of_bold_words(text: str) -> int | None:
    """Single words in bold all over a text."""
    bold = sum(1 for _ in BOLD_WORD.finditer(text))
    is_much = bold >= MIN_BOLD and bold >= BOLD_SHARE * len(text.split())
    return text.index("**") if is_much else None


def position_of_capitals(text: str) -> int | None:
    """A text of sentences that is all in capitals."""
    if text != text.upper():
        return None
    # Most scripts have no capitals at all.
    capitals = sum(map(str.isupper, text))
    return 0 if capitals >= MIN_CAPITALS and capitals > len(text) // 2 else None


def position_of_conflict(text: str) -> int | None:
    """Both sides of a merge that Git could not do by itself."""
    return _first_of_many(CONFLICT, text, 1) if "<<<<<<<" in text else None


def position_of_listing_marks(text: str) -> int | None:
    """Numbers or plus signs in front of all lines of code, as listings and diffs have them."""
    lines = _lines_of_code(text)
    if len(lines) < MIN_LINES:
        return None
    plus = sum(line.startswith("+") for line in lines)
    if plus >= MOST_LINES * len(lines):
        return 0
    numbered = [match for line in lines if (match := NUMBERED_LINE.fullmatch(line))]
    if len(numbered) < MOST_LINES * len(lines):
        return None
    numbers = [int(one[1]) for one in numbered]
    rise = sum(after > before for before, after in pairwise(numbers))
    code = "\n".join(one[2] for one in numbered)
    return 0 if rise == len(numbers) - 1 and LOOKS_LIKE_CODE.search(code) else None


def position_of_session_marks(text: str) -> int | None:
    """Prompts of an interpreter in front of nearly all lines."""
    lines = _lines_of_code(text)
    marked = sum(1 for line in lines if SESSION_LINE.match(line))
    is_session = len(lines) >= MIN_LINES and marked >= MOST_LINES * len(lines)
    return 0 if is_session else None


def position_of_lost_indentation(text: str) -> int | None:
    """Blocks of Python that are never indented."""
    if ":\n" not in text:
        return None
    lines = [line for line in text.split("\n") if line.strip()]
    place, opened = None, 0
    for line, following in pairwise(lines):
        block = OPENS_BLOCK.fullmatch(line)
        if block is None:
            continue
        if len(following) - len(following.lstrip()) > len(block[1]):
            return None
        opened += 1
        place = text.index(line) if place is None else place
    return place if opened >= MIN_PLACES else None


def _lines_of_code(text: str) -> list[str]:
    """The lines of a text that are neither blank nor a fence."""
    return [line for line in FENCE_LINE.sub("", text).split("\n") if line.strip()]
