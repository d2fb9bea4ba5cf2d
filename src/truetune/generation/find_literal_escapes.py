"""Finds characters that stand in an answer as a file escapes them, and not as a reader should see them.

`\\n` as a backslash and a letter, `&amp;`, `\\u00e9`, `%20`, `=C3=A9`: the rows went through one step of writing (CSV,
JSON, HTML, mail) more often than through reading, and the model has learned the letters of the escape. Such characters
are at home in code, JSON, paths, formulas and addresses, which are left out; so is a text that speaks of HTML.

The trade-off: all that may be meant is left out, so that answers about code are not judged at all; a false alarm there
would send a user to look for a fault in data that have none.
"""

from __future__ import annotations

import re
from collections import Counter

# Chosen, not measured: one may be a slip of the data, and data with this fault have it in most rows.
MIN_ESCAPES = 2
"""Places of a kind that are no accident; a line break that stands twice in a row counts as two"""
# Chosen, not measured: a sentence may end in a colon or a bracket, three in one answer seldom do.
MIN_CODE_LINES = 3
"""Lines that look like code, outside of a fence, from which all is taken for code"""
SHOWN_ESCAPES = 3
"""Escapes that are named"""
_CODE = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$|\\\(.*?\\\)|\\\[.*?\\\]"
    r"|\\begin\{.*?\\end\{[^}]*\}",
    re.DOTALL,
)
_QUOTED = re.compile(r"\"[^\"\n]{0,300}\"|'[^'\n]{0,20}'|/[^/\n ]{1,80}/")
"""Short literals: `split("\\n")`, '\\t', a pattern"""
_CODE_LINE = re.compile(
    r"^[^\n]*(?:[;{}]|\w\([^)\n]*\)|=[ ]*[\"'\[]|\b(?:import|return|def|echo|printf?|regex)\b)[ \t]*$",
    re.MULTILINE,
)
_ADDRESS = re.compile(r"\b(?:https?|ftp|file|mailto):\S+|\b[A-Za-z]:\\\S+|\\\\\w+\\\S+")
_TAG = re.compile(r"</?[a-z][a-z0-9]*(?:\s[^<>]*)?/?>", re.IGNORECASE)
_SPEAKS_OF_ESCAPES = re.compile(
    r"(?i:\b(?:escap(?:e|es|ed|ing)|backslash(?:es)?|latex|regex|regular expression"
    r"|newline characters?)\b|转义|正则)"
)
_SPEAKS_OF_MARKUP = re.compile(
    r"(?i:\b(?:html|xml|entit(?:y|ies)|encod(?:e|es|ed|ing)|unicode|urls?)\b|编码)"
)
_LINE_BREAK = re.compile(
    r"(?<![\\])(?:(?<![ ])\\(?:r\\)?n(?=\\[rnt]|[^a-z]|\Z)|\\(?:r\\)?n(?![a-z ]))"
)
"""Behind `\\n` no small letter may follow, which is the rest of \\nabla, \\neq or of a path; between spaces it is
spoken of"""
_OTHERS = {
    "HTML entities": re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{2,5}|#x[0-9a-fA-F]{2,4});"),
    "escaped characters": re.compile(r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}"),
    "percent codes": re.compile(r"(?<=\w)%(?:20|2C|0A|27|3F|C3%[89AB][0-9A-F])(?=\w|%)"),
    "mail codes": re.compile(r"=(?:[CE][0-9A-F]=[89AB][0-9A-F]|20(?=\n|\Z)|3D)"),
}


def find_unwanted_escapes(text: str, question: str = "") -> tuple[str, ...]:
    """The escapes that stand in an answer instead of characters, the most frequent first; () where they are few."""
    conversation = f"{question}\n{text}"
    # JSON, HTML and XML are written with escapes; so are answers to "what does \\n mean?".
    if text.lstrip()[:1] in ("{", "[", "<") or _SPEAKS_OF_ESCAPES.search(conversation):
        return ()
    prose = _ADDRESS.sub(" ", _CODE.sub(" ", text))
    kinds = [Counter[str]()]
    if len(_CODE_LINE.findall(prose)) < MIN_CODE_LINES:
        without_literals = _QUOTED.sub(" ", _CODE_LINE.sub(" ", prose))
        kinds = [Counter(_LINE_BREAK.findall(without_literals))]
    if not (_TAG.search(prose) or _SPEAKS_OF_MARKUP.search(conversation)):
        kinds += [Counter(pattern.findall(prose)) for pattern in _OTHERS.values()]
    escapes = Counter[str]()
    for kind in kinds:
        if kind.total() >= MIN_ESCAPES:
            escapes += kind
    return tuple(escape for escape, _ in escapes.most_common(SHOWN_ESCAPES))
