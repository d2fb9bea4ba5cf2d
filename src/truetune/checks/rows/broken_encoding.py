"""Texts were decoded with the wrong encoding.

## What it does
Looks in answers for U+FFFD (a byte that could not be decoded), for UTF-8 that was read as Latin-1 or Windows-1252
(`cafÃ©`, `donâ€™t`), which it proves by decoding it back, and for control characters that no text contains. It is a
warning from 5 % of the rows, and an info below.

## Why it is bad
The model learns to write the broken characters, and they are encoded into rare tokens.

## Example
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: "Itâ€™s open, the cafÃ© too."}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: "It’s open, the café too."}]}
```

## Fix safety
Converting UTF-8 back is safe if it decodes (`text.encode("cp1252").decode("utf-8")`). U+FFFD is lost: read the source
again, with the encoding that it was written in.

## References
- CrowdTruth/Medical-Relation-Extraction#1
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import AnswerFault, AnswerText, AnswerTextRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.data.conversation import Conversation

MOJIBAKE = re.compile(
    "[\u00c2\u00c3\u00e2\u00e3-\u00ef\u00d0\u00d1\u00d8\u00d9][^\\x00-\\x7f]{1,3}"
)
"""A first byte of UTF-8 with what follows it, each read as a character of its own"""
# C0 and C1 without tab, line ends, form feed, escape (terminal colours) and U+0085, which Unicode
# calls a line end.
CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\x80-\x84\x86-\x9f]")
REPLACEMENT_CHARACTER = "\ufffd"
SHOWN_CHARACTERS = 20
# Of LLaMA-Factory's demo data and tinker-cookbook's chats (eleven sets, 4,268 rows) one has 1.3 %
# broken rows, the others none; a reader with the wrong encoding breaks every row that has an
# accent. At half nothing changes, at a quarter that set would warn.
WARNING_ONE_IN = 20
"""Share of the rows, as 1 in so many, from which it is a warning"""


class BrokenEncoding(AnswerTextRule):
    code = "ROW021"
    fault = Fault.TEXTS_IN_WRONG_ENCODING
    severity = "warning"
    looks_for = "an answer in a broken encoding"
    needs_tokenizer = False

    def find_fault(self, answer: AnswerText, row: Conversation) -> AnswerFault | None:
        """The first sign in an answer that it was decoded with the wrong encoding."""
        text = answer.text
        if text.isascii() and text.isprintable():
            return None
        for kind, at in (
            ("UTF-8 read as another encoding", _position_of_mojibake(text)),
            ("U+FFFD", text.find(REPLACEMENT_CHARACTER)),
            ("control characters", _position_of_first_match(CONTROLS, text)),
        ):
            if at >= 0:
                return AnswerFault(
                    kind,
                    f"{kind}: {text[max(0, at - SHOWN_CHARACTERS) : at + SHOWN_CHARACTERS]!r}",
                )
        return None

    def findings(self) -> Iterator[Finding]:
        if self.found:
            kinds = ", ".join(f"{kind} ({count:,})" for kind, count in self.kinds.most_common())
            yield self.finding(
                f"{self.faulty_row_count_in_words} have an answer in a broken encoding: {kinds}",
                "read the source again with open(path, encoding='utf-8'), or repair the text:"
                " text.encode('cp1252').decode('utf-8'); drop rows with U+FFFD, which can't be repaired",
                severity="warning" if self.found * WARNING_ONE_IN >= self.rows else "info",
                cases=self.cases,
                count=self.found,
                total=self.rows,
            )


def _position_of_first_match(pattern: re.Pattern[str], text: str) -> int:
    """Where a pattern matches first; -1 where it does not."""
    match = pattern.search(text)
    return -1 if match is None else match.start()


def _position_of_mojibake(text: str) -> int:
    """Where UTF-8 stands that was read as Latin-1 or Windows-1252; -1 where none does."""
    for match in MOJIBAKE.finditer(text):
        stretch = match[0]
        # How many bytes the character had is not known beforehand: the most is tried first.
        for length in range(len(stretch), 1, -1):
            for encoding in ("cp1252", "latin-1"):
                try:
                    turned = stretch[:length].encode(encoding).decode("utf-8")
                except UnicodeError:
                    continue
                if len(turned) == 1 and turned.isprintable():
                    return match.start()
    return -1
