"""Prompts contain the word that a program prints for a missing value (nan, undefined), as a whole text or line.

## What it does
Looks in system and user turns, and in prompts, for a text or a line that is such a word and nothing else, or a label
with it (`Context: nan`). People write `None`, `null` and `N/A` too: these count only if they are a whole field of the
row, and are an info. `<noinput>` and `not provided` count in fields too. It ignores code, and texts about the word (NaN
in a table). It is a warning from 5 % of the rows, and an info below.

## Why it is bad
An empty table cell was turned into text (pandas writes `nan`, `str(None)` writes `None`). The model learns from prompts
with a line that no user sends. When it is served, that line is missing.

## Example
```yaml
data:
  - {instruction: "When does it open?", input: nan, output: At nine.}
  - {instruction: "Is it open?", input: nan, output: It is open.}
  - {instruction: "Summarise it.", input: "The shop opens at nine.", output: It opens at nine.}
```

## Use instead
```yaml
data:
  - {instruction: "When does it open?", input: "", output: At nine.}
  - {instruction: "Is it open?", input: "", output: It is open.}
  - {instruction: "Summarise it.", input: "The shop opens at nine.", output: It opens at nine.}
```

## Fix safety
Reading the table so that empty cells stay empty (`keep_default_na=False`, or `fillna("")` before the rows are written)
changes only these prompts.

## References
- unslothai/unsloth#10813, https://huggingface.co/datasets/yahma/alpaca-cleaned (inputs that say "no input"),
  https://pandas.pydata.org/docs/user_guide/missing_data.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.base_of_rules_on_row_texts import RowText, RowTextRule, TextFault
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.patterns_telling_code_from_prose import CODE, LOOKS_LIKE_CODE
from truetune.checks.rows.answer_is_a_null_word import CERTAIN_WORDS, NULL_WORDS
from truetune.data.conversation import Conversation

LABEL = r"(?:[#*>-]+ ?)?[^\W\d_][\w ()/-]{0,40}\**:\**[ \t]*"
"""What may stand before a value on its line: `Context: `, `### Input: `, `**Notes:** `"""


def _pattern_of_lines_with_only_word(words: str) -> re.Pattern[str]:
    """Lines that are one of some words, given as a pattern, with a label before it or without."""
    return re.compile(
        rf"^[ \t]*(?:{LABEL})?(?P<word>{words})\.?[ \t]*$", re.IGNORECASE | re.MULTILINE
    )


# The longest first: `<nan>` begins with no other word, but `nan` is in it.
CERTAIN_LINE = _pattern_of_lines_with_only_word(
    "|".join(re.escape(word) for word in sorted(CERTAIN_WORDS, key=len, reverse=True))
)
NO_INPUT = re.compile(
    r"[<(\[]?no ?(?:input|context)(?: (?:needed|required|provided|given|available))?[>)\]]?\.?"
    r"|[<(\[]?not (?:applicable|available|provided|specified|needed|required)[>)\]]?\.?",
    re.IGNORECASE,
)
"""What people and generators write into a field that was to stay empty: `<noinput>`, `No input`"""
MAX_WORD_CHARACTERS = 30


class NullWordsInPrompts(RowTextRule):
    code = "ROW070"
    fault = Fault.MISSING_VALUES_CONFUSED_WITH_TEXT
    symptoms = ("garbage-output",)
    severity = "warning"
    looks_for = "a missing-value word in the prompt"
    needs_tokenizer = False

    def find_fault(self, text: RowText, row: Conversation) -> TextFault | None:
        """The null word that a question holds by itself, on a line or in a field of the row."""
        if text.is_answer:
            return None
        match = CERTAIN_LINE.search(text.text)
        if match is not None and not _is_null_word_used_in_text(text.text, match["word"]):
            return TextFault(match["word"], f"a line of the prompt is {match[0].strip()!r}")
        return _fault_of_field(text.text, row)

    def findings(self) -> Iterator[Finding]:
        if not self.has_several_or_only_faulty_rows:
            return
        is_certain = any(
            word.lower() in CERTAIN_WORDS or NO_INPUT.fullmatch(word) for word in self.kinds
        )
        yield self.finding(
            f"{self.faulty_row_count_in_words} have a missing-value word in the prompt, which no user sends:"
            f" {self.fault_kinds_with_row_counts}",
            "read the table so that empty cells stay empty (pandas: keep_default_na=False, or fillna('')), and"
            " leave that part of the prompt out if it is empty",
            severity=self.severity_by_share_of_faulty_rows() if is_certain else "info",
            cases=self.cases,
            count=self.faulty,
            total=self.rows,
        )


def _is_null_word_used_in_text(text: str, word: str) -> bool:
    """Does a text use the word elsewhere than on a line of its own, or is it code or a table?"""
    prose = CODE.sub(" ", text)
    # `<noinput>` by itself looks like markup.
    rest = _pattern_of_lines_with_only_word(re.escape(word)).sub(" ", prose)
    if LOOKS_LIKE_CODE.search(rest) or "|" in rest:
        return True
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", rest, re.IGNORECASE) is not None


def _fault_of_field(text: str, row: Conversation) -> TextFault | None:
    """The null word that is a whole field of the row, and a line of the question."""
    for name, value in (row.raw or {}).items():
        if not isinstance(value, str) or len(value) > MAX_WORD_CHARACTERS:
            continue
        word = value.strip()
        is_for_nothing = word.lower() in NULL_WORDS or NO_INPUT.fullmatch(word)
        if not is_for_nothing or not re.search(rf"(?m)^{re.escape(word)}$", text):
            continue
        if not _is_null_word_used_in_text(text, word):
            return TextFault(word, f"the column {name} is {word!r}, and is in the prompt")
    return None
