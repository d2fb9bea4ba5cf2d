"""Answers are encoded text (base64, hex, Python's repr) instead of language.

## What it does
Decodes answers and questions that are mostly base64, hex, percent-encoding, quoted-printable or a MIME header. It also
looks for answers that are a list, an object or bytes as Python prints them (`['It is open.']`, `b'It is'`). It ignores
rows that ask for it (encode, decode, a hash, a list, code), and stretches short enough to be a key. It is an error from
50 % of the rows, a warning from 5 %, and an info below.

## Why it is bad
No model can predict base64: the loss stays high, and the model learns to write letters without meaning. Lists that
Python printed teach it brackets and quotes around each answer.

## Example
```yaml
data:
  - {instruction: "Is it open?", output: "WWVzLCB0aGUgbXVzZXVtIGlzIG9wZW4gZnJvbSBuaW5lIHRvIGZpdmUu"}
  - {instruction: "Where is it?", output: "SXQgc3RhbmRzIG9uIHRoZSBoaWxsIGJlaGluZCB0aGUgb2xkIHN0YXRpb24u"}
```

## Use instead
```yaml
data:
  - {instruction: "Is it open?", output: "Yes, the museum is open from nine to five."}
  - {instruction: "Where is it?", output: "It stands on the hill behind the old station."}
```

## Fix safety
Decoding is safe if it gives text (`base64.b64decode`, `bytes.fromhex`, `urllib.parse.unquote`, `quopri.decodestring`,
`ast.literal_eval`). Bytes that are not text (a picture, an archive, a pickle) can't be an answer: drop such rows.

## References
- https://docs.python.org/3/library/email.message.html (get_content decodes the transfer encoding of a mail)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import text_besides_answers
from truetune.checks.base_of_rules_on_row_texts import RowText, RowTextRule, TextFault
from truetune.checks.detect_base64_and_similar_texts import detect_text_encoding
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.patterns_telling_code_from_prose import ABOUT_CODE, CODE
from truetune.data.conversation import Conversation

ABOUT_ENCODING = re.compile(
    r"\b(?:base-?64|hex\w*|encod\w+|decod\w+|encrypt\w*|decrypt\w*|hash\w*|sha-?\d+|md5|cipher\w*|keys?|tokens?|url\w*|"
    r"uuid|checksum|signature|binary|bytes?|ascii|lists?|arrays?|dict\w*|tuples?|sets?|extract\w*|regex)\b|编码|解码|列表",
    re.IGNORECASE,
)
"""Words of a prompt that asks for such an answer"""
# Chosen; of LLaMA-Factory's demo data and tinker-cookbook's chats (eleven sets, 4,268 rows) one has
# a single such row. Where half of the rows are so, the reader never decoded the column.
ERROR_SHARE = 0.5
"""Share of the rows from which it is an error"""


class EncodedText(RowTextRule):
    code = "ROW027"
    fault = Fault.ESCAPES_INSTEAD_OF_CHARACTERS
    symptoms = ("garbage-output",)
    severity = "error"
    looks_for = "encoded text instead of language"
    needs_tokenizer = False

    def find_fault(self, text: RowText, row: Conversation) -> TextFault | None:
        """The encoding that a text is in, unless the prompt asks for it."""
        encoding = detect_text_encoding(CODE.sub(" ", text.text))
        # A prompt may show a list as Python prints it, as its subject; an answer in words is no
        # list.
        if encoding is None or (encoding.name == "Python's repr" and not text.is_answer):
            return None
        if text.is_answer and _does_prompt_ask_for_encoding(row):
            return None
        decoded = f", which says {encoding.decoded!r}" if encoding.decoded else ""
        return TextFault(encoding.name, f"{encoding.name}{decoded}: {text.text.strip()[:40]!r}")

    def findings(self) -> Iterator[Finding]:
        if not self.has_several_or_only_faulty_rows:
            return
        yield self.finding(
            f"{self.faulty_row_count_in_words} contain encoded text instead of language, in"
            f" {self.faulty_texts_in_words}: {self.fault_kinds_with_row_counts}",
            "decode the texts where the data is read (base64.b64decode, bytes.fromhex, urllib.parse.unquote,"
            " ast.literal_eval); drop rows whose bytes are not text",
            severity=self.severity_by_share_of_faulty_rows(error_from=ERROR_SHARE),
            cases=self.cases,
            count=self.faulty,
            total=self.rows,
        )


def _does_prompt_ask_for_encoding(row: Conversation) -> bool:
    """Does the prompt ask for code, a list or something encoded?"""
    prompt = text_besides_answers(row)
    return bool(ABOUT_ENCODING.search(prompt) or ABOUT_CODE.search(prompt))
