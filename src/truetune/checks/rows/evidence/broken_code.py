r"""Code inside a text that no compiler takes: Python that does not parse, brackets that do not close, a block without
any word of its language.

Code that a machine translated, a converter cleaned of markup, or a limit cut, is broken in most places; code that
people or models wrote is broken in few. What may be right in another reading is left out: sessions of an interpreter,
Python 2, places to fill in, diffs. Comments and strings are taken away before brackets are counted.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from truetune.parsing.input_limits import REPLY, InputLimitError
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.parse_python_within_limits import parse_python

MAX_CODE = 20_000
"""Characters of a block that is judged: longer ones are files, and take time"""
MIN_LINES_WITH_WORDS = 3
"""Lines of a block from which it has a word of its language: shorter ones are one call"""
SHOWN_CHARACTERS = 60
FENCED = re.compile(r"^[ \t]*```[ \t]*([\w+#-]*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.M | re.S)
PYTHON = frozenset(("python", "py", "python3"))
# A line that opens a block and has a bracket or a comparison, and a line of code below: YAML, outlines and sentences
# have neither.
OPENS_PYTHON_BLOCK = re.compile(
    r"^[ \t]*[^\W\d_]\w*[ \t](?=[^\n]*[(\[<>=])(?![^\n]*[.,;] [A-Z])[^\n:]{1,120}:[ \t]*\n"
    r"(?:    |\t)[^\n]*(?:\w\(| = | \+= |\w\[)",
    re.M,
)
FIRST_LINE_OF_PYTHON = re.compile(r"\s*(?:def \w+\(|class \w+|import \w|from \w[\w.]* import |@\w)")
NOT_JUDGED_PYTHON = re.compile(
    r"^[ \t]*(?:>>> |\.\.\. |In \[\d|[+-](?![-+=\d ])|@@ )"
    r"|<[A-Za-z_][\w -]{0,60}>|\{\{|\[(?:your|insert)\b|^[ \t]*\w+@\w+[:$]",
    re.M | re.I,
)
"""Sessions, diffs, places to fill in"""
PYTHON_2 = re.compile(
    r"^[ \t]*print [^(=\s]|^[ \t]*print$|^[ \t]*except [\w.]+, \w+:|\braise \w+, |\bexec [\"']",
    re.M,
)
"""Statements that only Python 2 takes"""
PYTHON_3_NAMED = re.compile(r"\bpy(?:thon)?[ -]?3(?:\.\d+)?(?!\w)", re.I)
PYTHON_2_NAMED = re.compile(r"\bpy(?:thon)?[ -]?2(?:\.\d+)?(?!\w)|\b2to3\b", re.I)
SHELL_LINE = re.compile(
    r"^[ \t]*(?:[!%$?]|(?:pip3?|conda|python3?|cd|git|apt(?:-get)?|npm|export) [\w.-]).*$", re.M
)
COMMENTS_AND_STRINGS = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"\"\".*?\"\"\"|\"(?:\\.|[^\"\\\n])*\"|`(?:\\.|[^`\\])*`|'(?:\\.|[^'\\\n])'",
    re.S,
)
STRINGS_IN_SINGLE_QUOTES = re.compile(r"'(?:\\.|[^'\\\n])*'")
IN_SINGLE_QUOTES = frozenset(("javascript", "js", "typescript", "ts", "jsx", "tsx", "php"))
IN_BRACKETS = IN_SINGLE_QUOTES | frozenset(
    ("java", "c", "cpp", "c++", "csharp", "cs", "c#", "go", "golang", "rust", "kotlin", "swift", "scala", "css",
     "dart")
)  # fmt: skip
MARKUP = frozenset(("html", "xml", "svg", "xhtml"))
TAG_OR_SCRIPT = re.compile(
    r"<!--.*?-->|<(script|style|pre|code)\b[^>]{0,300}>.*?</\1>"
    r"|<(/?)([A-Za-z][\w:-]{0,40})(?:[^<>\"']|\"[^\"]{0,400}\"|'[^']{0,400}'){0,400}?(/?)>",
    re.S,
)
NEED_NO_END = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "p", "li",
     "option", "td", "tr", "th", "dt", "dd", "thead", "tbody", "html", "body", "head", "param")
)  # fmt: skip
"""Elements of HTML without an end tag, or whose end may be left out"""
CLOSING = {")": "(", "]": "[", "}": "{"}
ELIDED = re.compile(r"\.\.\.|\u2026")
EMPTY_INCLUDE = re.compile(r"^[ \t]*#include[ \t]*$", re.M)
C_FAMILY = r"int|void|return|if|for|while|include|class|struct|public|const|using|namespace|static|new|char|double"
WORDS_OF_LANGUAGE = {
    "sql": r"select|insert|update|delete|create|with|alter|drop|merge|grant|begin|set|show|use|explain|declare"
    r"|truncate",
    "java": C_FAMILY
    + r"|import|package|private|protected|boolean|String|interface|enum|var|System",
    "c": C_FAMILY + r"|define|unsigned|long|printf",
    "cpp": C_FAMILY + r"|define|auto|std|template|cout",
    "c++": C_FAMILY + r"|define|auto|std|template|cout",
    "csharp": C_FAMILY
    + r"|var|string|bool|Console|private|protected|interface|foreach|async|await",
    "javascript": r"function|const|let|var|return|if|for|while|import|export|class|new|await|async|console|document"
    r"|require|module|this|true|false|null",
    "js": r"function|const|let|var|return|if|for|while|import|export|class|new|await|async|console|document|require"
    r"|module|this|true|false|null",
    "go": r"func|package|import|return|if|for|range|var|type|struct|const|go|defer|fmt",
    "rust": r"fn|let|use|pub|mod|impl|struct|enum|match|for|if|return|mut|println",
    "php": r"php|function|echo|return|if|foreach|for|class|public|use|namespace|require|include|new|while|array",
}
"""Of each tag the words of which nearly every block of some lines has one"""
MATCH_WORDS = {
    tag: re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.I if tag == "sql" else 0)
    for tag, words in WORDS_OF_LANGUAGE.items()
}


class JudgedCode(NamedTuple):
    """One piece of code."""

    language: str
    fault: str
    """What is wrong with it, with an excerpt; empty where nothing is"""
    is_python_2: bool = False
    """Is what is wrong with it a statement of Python 2, where Python 3 is asked for?"""


def does_prompt_ask_for_python_3(prompt: str) -> bool:
    """Does a prompt name Python 3, and neither name Python 2 nor hold any, as one that asks for a translation does?"""
    if PYTHON_3_NAMED.search(prompt) is None:
        return False
    return PYTHON_2_NAMED.search(prompt) is None and PYTHON_2.search(prompt) is None


def judge_code_in_text(text: str, *, is_python_3_asked: bool = False) -> Iterator[JudgedCode]:
    """The pieces of code in a text, each with what is wrong with it.

    Args:
        text: of an answer.
        is_python_3_asked: whether the prompt asks for Python 3, so that Python 2 is wrong.

    Yields:
        blocks between fences whose language is known, and paragraphs or whole texts of Python without fences. What
        can't be judged is left out.
    """
    if len(text) > MAX_CODE:
        return
    if "```" in text:
        for match in FENCED.finditer(text):
            yield from _judge_block(match[1].lower(), match[2], is_python_3_asked)
    elif FIRST_LINE_OF_PYTHON.match(text) and "{\n" not in text and ";\n" not in text:
        yield from _judge_python(text, is_python_3_asked)
    else:
        for paragraph in text.split("\n\n"):
            if OPENS_PYTHON_BLOCK.search(paragraph) and ";\n" not in paragraph:
                yield from _judge_python(_without_prose_in_front(paragraph), is_python_3_asked)


def _judge_block(tag: str, code: str, is_python_3_asked: bool) -> Iterator[JudgedCode]:
    """A block between fences, by its tag."""
    if tag in PYTHON:
        yield from _judge_python(code, is_python_3_asked)
    elif tag == "json":
        yield JudgedCode(tag, _fault_of_json(code))
    elif tag in MARKUP:
        yield JudgedCode(tag, _unbalanced_tag(code))
    elif tag in IN_BRACKETS or tag in MATCH_WORDS:
        yield JudgedCode(tag, _fault_of_code_in_brackets(tag, code))


def _without_prose_in_front(paragraph: str) -> str:
    """A paragraph from its first line on that is code, or opens a block."""
    lines = paragraph.split("\n")
    for index, line in enumerate(lines):
        is_indented_below = index + 1 < len(lines) and lines[index + 1][:1] in (" ", "\t")
        if (line.rstrip().endswith(":") and is_indented_below) or re.match(
            r"[\w.]+ = |#|import |from ", line
        ):
            return "\n".join(lines[index:])
    return paragraph


def _judge_python(code: str, is_python_3_asked: bool) -> Iterator[JudgedCode]:
    """Python, unless it is a session, has places to fill in, or is of Python 2 and may be."""
    code = SHELL_LINE.sub("", code)
    if not code.strip() or NOT_JUDGED_PYTHON.search(code):
        return
    has_python_2 = PYTHON_2.search(code) is not None
    if has_python_2 and not is_python_3_asked:
        return
    try:
        parse_python(textwrap.dedent(code.expandtabs(4)))
    except SyntaxError as error:
        yield from _judge_syntax_error(code, error, has_python_2)
    except (InputLimitError, ValueError):
        return
    else:
        yield JudgedCode("python", "")


def _judge_syntax_error(code: str, error: SyntaxError, has_python_2: bool) -> Iterator[JudgedCode]:
    """Python that does not parse, unless it is the head of a function alone, or another line than one of Python 2."""
    lines = code.rstrip().split("\n")
    number = max(1, error.lineno or 1)
    # The head of a function by itself is what a prompt shows.
    if error.msg.startswith("expected an indented block") and number >= len(lines):
        return
    line = lines[min(len(lines), number) - 1].strip()
    # Where another line is what does not parse, the version says nothing about it.
    if has_python_2 and PYTHON_2.search(line) is None:
        return
    fault = f"{line[:SHOWN_CHARACTERS]} ({error.msg})"
    yield JudgedCode("python", fault, is_python_2=has_python_2)


def _fault_of_code_in_brackets(tag: str, code: str) -> str:
    """What is wrong with code of another language: its words, its headers or its brackets."""
    words = MATCH_WORDS.get(tag)
    lines = [line for line in code.split("\n") if line.strip()]
    is_long = len(lines) >= MIN_LINES_WITH_WORDS or (tag == "sql" and lines)
    if words and is_long and lines[0].lstrip()[:1] not in "[<" and not words.search(code):
        return f"{lines[0].strip()[:SHOWN_CHARACTERS]} (no word of {tag})"
    if EMPTY_INCLUDE.search(code):
        return "#include (without a file)"
    if tag not in IN_BRACKETS or ELIDED.search(code):
        return ""
    return _unbalanced_bracket(tag, code)


def _fault_of_json(code: str) -> str:
    """What a JSON parser says of a block; nothing of elided ones, of ones with comments, and of several values."""
    if ELIDED.search(code) or "//" in code or "#" in code or code.lstrip()[:1] not in ("{", "["):
        return ""
    try:
        parse_json(code, REPLY)
    except InputLimitError:
        return ""
    except ValueError as error:
        is_more = "Extra data" in str(error)
        return (
            ""
            if is_more
            else f"{code.strip()[:SHOWN_CHARACTERS]} ({str(error)[:SHOWN_CHARACTERS]})"
        )
    return ""


def _unbalanced_tag(code: str) -> str:
    """The first element that has not as many ends as beginnings; of HTML without those that need no end."""
    opened: Counter[str] = Counter()
    for match in TAG_OR_SCRIPT.finditer(code):
        name = (match[3] or "").lower()
        if name and not match[4] and name not in NEED_NO_END:
            opened[name] += -1 if match[2] else 1
    uneven = [(one, count) for one, count in opened.items() if count]
    if not uneven or ELIDED.search(code):
        return ""
    name, count = uneven[0]
    return f"<{name}> is opened {count:+d} times more than it is closed"


def _unbalanced_bracket(tag: str, code: str) -> str:
    """The first bracket that has no partner; empty where all have one."""
    bare = COMMENTS_AND_STRINGS.sub(" ", code)
    if tag in IN_SINGLE_QUOTES:
        bare = STRINGS_IN_SINGLE_QUOTES.sub(" ", bare)
    opened: list[str] = []
    for char in bare:
        if char in "([{":
            opened.append(char)
        elif char in CLOSING and (not opened or opened.pop() != CLOSING[char]):
            return f"{char} closes no bracket"
    return f"{opened[-1]} is never closed" if opened else ""
