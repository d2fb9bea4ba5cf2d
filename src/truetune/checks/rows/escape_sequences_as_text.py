r"""Texts hold escape sequences (`\n`, `&amp;`) in place of the characters.

## What it does
Looks for the characters that an escape sequence is written with, in questions and answers: `\n`, `\t`, `\"`, `\u00e9`,
`&amp;` and other HTML entities, `<br>` for a line break, `_x000D_` of spreadsheets, `<0x0A>` and `Ġ` of tokenizers, and
whole answers that are a JSON string in quotes. A text counts where the real character is missing from it: one with
escaped newlines has no line break. Passed over are code, JSON, formulas, paths, quoted examples and markup. A warning
where 5 % of the rows have it; of fewer a note, for they may talk of it.

## Why it is bad
The model learns to write a backslash and an n where a line should end. Lists come out as one line, letters as their
codes, and the loss looks as it should. Most often a table (CSV, a spreadsheet, a database) was written with escapes and
read without.

## Example
```yaml
data:
  - {instruction: "Name two rivers.", output: "Two rivers are:\\n\\n1. The Rhine\\n2. The Danube"}
  - {instruction: "Name two hills.", output: "Two hills are:\\n\\n1. Arthur's Seat\\n2. Calton Hill"}
```

## Use instead
```yaml
data:
  - {instruction: "Name two rivers.", output: "Two rivers are:\n\n1. The Rhine\n2. The Danube"}
  - {instruction: "Name two hills.", output: "Two hills are:\n\n1. Arthur's Seat\n2. Calton Hill"}
```

## Fix safety
Turning a sequence into its character (`text.replace("\\n", "\n")`, `html.unescape`, `json.loads` of a JSON string) is
safe for prose. In rows about code the sequence may be meant: turn them back where the source was written.

## References
- EricFillion/happy-transformer#283 (escaped newlines in the rows came back in the answers),
  https://docs.python.org/3/library/csv.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from truetune.checks.code_texts import CODE, LOOKS_LIKE_CODE
from truetune.checks.findings import Finding
from truetune.checks.row_texts import RowText, RowTextRule, TextFault
from truetune.data.conversation import Conversation

SIGNS = "\\&<_\u0120\u010a"
"""One of them stands in each sequence; most texts have none"""
QUOTED = re.compile(
    r"""(["'\u201c\u2018(])[^"'\n]{0,12}?(?:\\[ntr"]|&\w+;|<br ?/?>)[^"'\n]{0,12}?["'\u201d\u2019)]"""
)
"""A sequence that is talked of stands in quotes of its own"""
PATH = re.compile(r"\b[A-Za-z]:\\\S+|\\\\\w+\\\S+")
SEQUENCES = {
    r"\n": re.compile(r"(?:\\r)?\\n(?![a-z])|(?:\\r)?\\n(?=\\n)"),
    r"\t": re.compile(r"\\t(?![a-z])"),
    r"\"": re.compile(r'\\"[^"\\\n]{1,200}\\"'),
    r"\u00e9": re.compile(r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}"),
    "&amp;": re.compile(
        r"&(?:amp|quot|lt|gt|nbsp|apos|[a-z]acute|[aou]uml|[lr][ds]quo|#\d{2,5}|#x[0-9a-fA-F]{2,4});"
    ),
    "<br>": re.compile(r"<br ?/?>", re.IGNORECASE),
    "_x000D_": re.compile(r"_x000[DA9]_"),
    "<0x0A>": re.compile(r"<0x[0-9A-F]{2}>"),
    "\u0120": re.compile("[a-z,.]\u0120[A-Za-z]|\u010a"),
}
"""By the name that a finding gives them"""
BREAKS = (r"\n", "<br>", "_x000D_")
"""They stand for a line break: a text that has real ones as well holds the sequence on purpose"""
MARKUP = re.compile(r"</\w+>|<!DOCTYPE|<\?xml", re.IGNORECASE)
AROUND = 25


class EscapeSequencesAsText(RowTextRule):
    code = "TT341"
    severity = "warning"
    looks_for = "escape sequences in place of their characters"

    def fault(self, text: RowText, row: Conversation) -> TextFault | None:
        if not any(sign in text.text for sign in SIGNS) and text.text[:1] != '"':
            return None
        if text.is_answer and _is_json_string(text.text):
            return TextFault("a JSON string", f"the answer is a JSON string: {text.text[:60]!r}")
        if _is_json(text.text):
            return None
        prose = QUOTED.sub(" ", PATH.sub(" ", CODE.sub(" ", text.text)))
        for name, pattern in SEQUENCES.items():
            found = pattern.search(prose)
            if found is None or (name in BREAKS and "\n" in text.text.strip()):
                continue
            if MARKUP.search(prose) or LOOKS_LIKE_CODE.search(prose):
                return None
            near = prose[max(0, found.start() - AROUND) : found.end() + AROUND]
            return TextFault(name, f"{name} as text: {near.strip()!r}")
        return None

    def findings(self) -> Iterator[Finding]:
        if not self.is_more_than_one:
            return
        yield self.finding(
            f"{self.share} hold escape sequences in place of their characters, in {self.where}:"
            f" {self.shown_kinds}",
            "turn them into the characters where the data are read (str.replace, html.unescape,"
            " json.loads), and see how the file was exported",
            severity=self.severity_of(),
            cases=self.cases,
            count=self.faulty,
            total=self.rows,
        )


def _is_json_string(text: str) -> bool:
    """Is the whole text one JSON string with something escaped in it? Then it was encoded once too often."""
    bare = text.strip()
    if not (len(bare) > 2 and bare[0] == bare[-1] == '"' and "\\" in bare):
        return False
    try:
        return isinstance(json.loads(bare), str)
    except ValueError:
        return False


def _is_json(text: str) -> bool:
    """Is the text a JSON object or list? In JSON the sequences are right."""
    bare = text.strip()
    if bare[:1] not in ("{", "["):
        return False
    try:
        return isinstance(json.loads(bare), dict | list)
    except ValueError:
        return False
