r"""Texts contain escape sequences (`\n`, `&amp;`) instead of the characters, or the HTML markup of an export.

## What it does
Looks in questions and answers for characters that are written as an escape sequence:

- `\n`, `\t`, `\"`, `\u00e9`, `&amp;` and other HTML entities, `<br>` for a line break, `_x000D_` from spreadsheets,
- `<0x0A>`, `Ġ` and `▁` from tokenizers,
- a control character instead of the backslash of a LaTeX command (a form feed and `rac`, a tab and `imes`),
- whole answers that are a quoted JSON string,
- JSON in answers with `\u00fc` for letters that the prompt has as they are.

A text counts if the real character is missing from it: one with escaped newlines has no line break. It ignores code,
JSON, formulas, paths, quoted examples, and markup that the prompt asks for. In prose answers it also counts the tags of
an editor (`<p class="MsoNormal">`, `<div>`, `<br />`) with their entities, but not tags of pages and programs
(`<html>`, `<form>`, your own XML). It is a warning from 5 % of the rows, and an info below: a few may be about such
sequences. It is also an info if only bare tags (`<p>`, `<li>`) are found, since the answers may be meant to contain
them.

## Why it is bad
The model learns to write a backslash and an n where a line should end. Lists come out as one line and letters as their
codes, and the loss looks normal. Usually a table (CSV, a spreadsheet, a database) was written with escapes and read
without unescaping. Help desk articles, wikis and mails contain the markup of their editor: the model writes `&nbsp;`
and `<br />` into each of its answers.

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
Converting a sequence into its character (`text.replace("\\n", "\n")`, `html.unescape`, `json.loads` of a JSON string)
is safe for prose. In rows about code the sequence may be intended. An HTML parser converts markup to text
(`BeautifulSoup(text, "html.parser").get_text("\n")`); keep it if the answers are displayed as HTML.

## References
- EricFillion/happy-transformer#283 (escaped newlines in the rows came back in the answers),
  https://docs.python.org/3/library/csv.html
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import text_besides_answers
from truetune.checks.base_of_rules_on_row_texts import RowText, RowTextRule, TextFault
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.patterns_telling_code_from_prose import CODE, LOOKS_LIKE_CODE
from truetune.data.conversation import Conversation
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json

FIRST_SIGNS = "\\&<_\u0120\u010a\u2581\t\x0c\x08\x07\x0b\r"
"""One of them stands in each sequence; most texts have none"""
QUOTED_SEQUENCE = re.compile(
    r"""(["'\u201c\u2018(])[^"'\n]{0,12}?(?:\\[ntr"]|&\w+;|<br ?/?>)[^"'\n]{0,12}?["'\u201d\u2019)]"""
)
"""A sequence that is talked of stands in quotes of its own"""
# C:\new holds a backslash and an n, and so does \\server\name.
WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\\S+|\\\\\w+\\\S+")
# `\n` and `\t` before a small letter may be the beginning of a command or a path (\nabla, \theta):
# they are left alone.
LOST_BACKSLASH = "LaTeX without its backslash"
# `\frac` in a string that is not raw is a form feed and `rac`. Names that are words of a table or of code after a tab
# (`\text`, `\to`) are left out.
LATEX_AFTER_CONTROL = re.compile(
    r"\f(?:rac|orall)(?![a-z])|\x08(?:eta|egin|inom)(?![a-z])|\x07(?:lpha|pprox|ngle)(?![a-z])|\x0b(?:ec|dots)(?![a-z])"
    r"|\t(?:imes|heta|riangle)(?![a-z])|\r(?:ightarrow|ho|angle)(?![a-z])"
)
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
    # From the beginning of a word alone: tried from each letter of a long one, it took a second.
    "\u2581": re.compile(r"(?<!\w)\u2581?\w+[,.]?\u2581\w+[,.]?\u2581\w"),
}
"""By the name that a finding gives them"""
ESCAPED_IN_JSON = r"\u00e9 in JSON"
ESCAPED_RUN = re.compile(r"(?<!\\)(?:\\u[0-9a-fA-F]{4})+")
JSON_PIECE = re.compile(r'\A\s*(?:```(?:json)?\s*)?\[|"\s*:\s*(?:["\[{\d-]|null|true|false)')
"""What JSON has, as a whole answer, in a fence, or in tags within words"""
ASKS_FOR_ESCAPES = re.compile(r"ascii|escap|unicode|code ?points?|\\u[0-9a-fA-F]{4}", re.I)
LINE_BREAKS = (r"\n", "<br>", "_x000D_")
"""They stand for a line break: a text that has real ones as well holds the sequence on purpose"""
MARKUP_SOURCE = re.compile(r"</\w+>|<!DOCTYPE|<\?xml", re.IGNORECASE)
ELEMENT = re.compile(r"</?([a-z][\w:-]*)(?:\s[^<>]*)?/?>", re.IGNORECASE)
EDITOR_ELEMENT = re.compile(
    r"p|br|div|span|b|i|u|strong|em|a|[uo]l|li|table|thead|tbody|t[rdh]|h[1-6]|font|img|hr|blockquote|su[bp]|o:p",
    re.IGNORECASE,
)
"""Elements that editors of articles and mails write"""
BLOCK_END = re.compile(r"</(?:p|div|span|li|td|h[1-6]|font|o:p)>", re.IGNORECASE)
"""Markdown and chats hold `<br>`, `<b>` and `<sub>` by hand, and these seldom"""
EXPORT_TRACE = re.compile(
    r"<\w[^<>]*\s(?:class|style|dir|align|id)=|&(?:nbsp|amp|quot|apos|[lr][ds]quo|#\d{2,5});",
    re.IGNORECASE,
)
"""What an export leaves behind, and nobody writes who means the tags alone"""
ABOUT_MARKUP = re.compile(
    r"\b(?:x?html\w*|xml|css|mark-?up|web ?pages?|landing pages?|snippets?|newsletters?|(?:mail|page) templates?|"
    r"source code|elements?|svg|wordpress|tags)\b|<\w+>",
    re.IGNORECASE,
)
"""Words of a prompt, or of the answer itself, where markup is the subject or is asked for"""
TRACES, TAGS = "HTML markup", "HTML tags"
SHOWN_CHARACTERS = 25


class EscapeSequencesAsText(RowTextRule):
    code = "ROW025"
    fault = Fault.ESCAPES_INSTEAD_OF_CHARACTERS
    symptoms = ("garbage-output",)
    severity = "warning"
    looks_for = "escape sequences instead of characters"
    needs_tokenizer = False

    def find_fault(self, text: RowText, row: Conversation) -> TextFault | None:
        """The escape sequences or the markup that a text holds instead of the characters."""
        if not any(sign in text.text for sign in FIRST_SIGNS) and text.text[:1] != '"':
            return None
        lost = LATEX_AFTER_CONTROL.search(text.text)
        if lost is not None:
            near = text.text[
                max(0, lost.start() - SHOWN_CHARACTERS) : lost.end() + SHOWN_CHARACTERS
            ]
            return TextFault(LOST_BACKSLASH, f"{LOST_BACKSLASH}: {near!r}")
        if text.is_answer and _is_escaped_json_string(text.text):
            return TextFault("a JSON string", f"the answer is a JSON string: {text.text[:60]!r}")
        if text.is_answer:
            escaped = find_letters_escaped_in_json(text.text, text_besides_answers(row))
            if escaped is not None:
                return TextFault(ESCAPED_IN_JSON, f"{escaped!r} in JSON is escaped letters")
        if _is_json_object_or_list(text.text):
            return None
        prose = QUOTED_SEQUENCE.sub(" ", WINDOWS_PATH.sub(" ", CODE.sub(" ", text.text)))
        markup = _find_editor_markup(prose, row) if text.is_answer else None
        return markup or _find_escape_sequence(prose, has_line_breaks="\n" in text.text.strip())

    def findings(self) -> Iterator[Finding]:
        if not self.has_several_or_only_faulty_rows:
            return
        held, remedy = self._describe_faults_and_remedy()
        bare = set(self.kinds) == {TAGS}
        yield self.finding(
            f"{self.faulty_row_count_in_words} contain {held}, in {self.faulty_texts_in_words}:"
            f" {self.fault_kinds_with_row_counts}",
            remedy,
            severity="info" if bare else self.severity_by_share_of_faulty_rows(),
            cases=self.cases,
            count=self.faulty,
            total=self.rows,
        )

    def _describe_faults_and_remedy(self) -> tuple[str, str]:
        """(what the rows hold, what to do about it): sequences, markup, or both."""
        sequences = "escape sequences instead of characters, which the model learns to write"
        to_characters = (
            "convert them where the data is read: text.replace('\\\\n', '\\n') for line breaks, html.unescape(text)"
            " for entities, json.loads(text) for a JSON string; and correct the export that escaped them"
        )
        if set(self.kinds) == {ESCAPED_IN_JSON}:
            return (
                "JSON with \\u escapes for letters that the prompts have as they are, which the model learns to write",
                "write the answers with json.dumps(..., ensure_ascii=False) in the script that makes the rows",
            )
        if set(self.kinds) == {LOST_BACKSLASH}:
            return (
                "control characters instead of the backslash of a LaTeX command (a form feed and 'rac' for"
                " \\frac)",
                "write the rows again from their source: the script has the text in a string that is not raw, so"
                " Python reads '\\f' or '\\t' as an escape (use r'...', or write it with json.dumps)",
            )
        to_text = (
            "convert markup to plain text before training, e.g. BeautifulSoup(text, 'html.parser').get_text(),"
            " unless the answers are displayed as HTML"
        )
        markup = {TRACES, TAGS}
        if not markup & set(self.kinds):
            return sequences, to_characters
        if set(self.kinds) <= markup:
            return "HTML markup, which the model learns to write", to_text
        return f"{sequences} or HTML markup", f"{to_text}; {to_characters}"


def _find_escape_sequence(prose: str, *, has_line_breaks: bool) -> TextFault | None:
    """The first kind of escape sequence in a text.

    Args:
        prose: the text without code, paths and quoted sequences.
        has_line_breaks: has the whole text real ones?

    Returns:
        None where there is none, and where the text is code or markup, in which sequences are right.
    """
    for name, pattern in SEQUENCES.items():
        match = pattern.search(prose)
        if match is None or (name in LINE_BREAKS and has_line_breaks):
            continue
        # Only now: these searches cost more than all sequences, and most texts have none.
        if MARKUP_SOURCE.search(prose) or LOOKS_LIKE_CODE.search(prose):
            return None
        near = prose[max(0, match.start() - SHOWN_CHARACTERS) : match.end() + SHOWN_CHARACTERS]
        return TextFault(name, f"{name} as text: {near.strip()!r}")
    return None


def _find_editor_markup(prose: str, row: Conversation) -> TextFault | None:
    """The markup of an editor around an answer in words, where nobody asked for markup; None where there is none."""
    end = BLOCK_END.search(prose)
    if end is None or any(not EDITOR_ELEMENT.fullmatch(name) for name in ELEMENT.findall(prose)):
        return None
    words = html.unescape(ELEMENT.sub(" ", prose))  # the semicolon of an entity is none of code
    if LOOKS_LIKE_CODE.search(words) or ABOUT_MARKUP.search(f"{text_besides_answers(row)} {words}"):
        return None
    trace = EXPORT_TRACE.search(prose)
    at = (trace or end).start()
    excerpt = prose[max(0, at - SHOWN_CHARACTERS) : at + SHOWN_CHARACTERS]
    return TextFault(TRACES if trace else TAGS, f"HTML markup in the answer: {excerpt.strip()!r}")


def find_letters_escaped_in_json(answer: str, prompt: str) -> str | None:
    """The first letters that JSON in an answer escapes, though its prompt has such letters as they are.

    Returns:
        None where there are none, where the prompt is about escapes, and in code.
    """
    if "\\u" not in answer or prompt.isascii() or ASKS_FOR_ESCAPES.search(prompt):
        return None
    if JSON_PIECE.search(answer) is None:
        return None
    has_such_in_prompt_alone = _has_letters_beyond_ascii(prompt) and not _has_letters_beyond_ascii(
        answer
    )
    for run in ESCAPED_RUN.finditer(answer):
        units = b"".join(bytes.fromhex(unit) for unit in run[0].split("\\u")[1:])
        letters = units.decode("utf-16-be", "replace")
        if not any(map(str.isalpha, letters)):
            continue
        if letters in prompt or has_such_in_prompt_alone:
            return run[0][:SHOWN_CHARACTERS]
    return None


def _has_letters_beyond_ascii(text: str) -> bool:
    return any(letter.isalpha() and not letter.isascii() for letter in text)


def _is_escaped_json_string(text: str) -> bool:
    """Is the whole text one JSON string with something escaped in it? Then it was encoded once too often."""
    bare = text.strip()
    if not (len(bare) > 2 and bare[0] == bare[-1] == '"' and "\\" in bare):
        return False
    try:
        return isinstance(parse_json(bare, ROW), str)
    except ValueError:
        return False


def _is_json_object_or_list(text: str) -> bool:
    """Is the text a JSON object or list? In JSON the sequences are right."""
    bare = text.strip()
    if bare[:1] not in ("{", "["):
        return False
    try:
        return isinstance(parse_json(bare, ROW), dict | list)
    except ValueError:
        return False
