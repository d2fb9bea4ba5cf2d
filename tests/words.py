"""The words that readers of truetune stumble over, each with better ones, and how a text is checked for them.

`WORDS` is the list: a pattern, what to say instead, and which texts it is for. `tests/test_words.py` checks README.md,
docs/ and every string of src/ that holds a space: messages (strings that are no docstrings) and docstrings. It names
the place and the better words. Names of options, rules and JSON keys hold no space and are left alone.

`words_left.txt` counts what was there when a word came on the list, by file. A count may only fall:
`python -m tests.words` writes the file again, and refuses where a word's total has grown.

The trade-off: patterns can't tell every meaning. A noun is told from a verb by the word before it ("a look at" is
found, "rules look at" is not), so some uses are missed. A use that is right is listed in `RIGHT`, with its reason.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.syntax_trees import without_collections

ROOT = Path(__file__).parents[1]
LEFT = Path(__file__).parent / "words_left.txt"
PAGES, MESSAGES, DOCSTRINGS = "pages", "messages", "docstrings"
EVERYWHERE = (PAGES, MESSAGES, DOCSTRINGS)
READ_BY_USERS = (PAGES, MESSAGES)
_RULE_PAGE = "## What it does"
"""In the docstring of a rule's module, which is its page on the site and in `truetune explain`"""
NOT_CHECKED = {
    "docs/starts.md": "written from bench/starts: the words of the cases' users",
    "docs/bugs.md": "written from bench/bugs: the texts of the cases",
    "docs/changelog.md": "includes CHANGELOG.md, which is history",
}
_GENERATED = ("docs/rules/", "docs/reference/")
"""Written from docstrings, which are checked at their place"""


@dataclass(frozen=True, slots=True)
class Word:
    """A word or phrase that is not the field's, and what to say instead."""

    name: str
    """What `words_left.txt` calls it"""
    pattern: str
    """A regular expression; letters of either case, any white space for a blank"""
    better: str
    where: tuple[str, ...] = EVERYWHERE


@dataclass(frozen=True, slots=True)
class Text:
    """One text that is checked: a line of a page, or a string of a module."""

    path: str
    line: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A word of the list at its place."""

    path: str
    line: int
    word: Word
    found: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.found!r}: say {self.word.better}"


_LOOK_AS_NOUN = (
    r"\b(?:an?|each|every|all|the|one|first|last|earlier|next|this|two|few|\d+|planned|of) looks?\b"
    r"(?![-_ ](?:up|alike|like|ahead|wrong|right|whether|if|at its own))"
)
WORDS = (
    Word("mend", r"\bmend(?:s|ed|ing)?\b", "fix"),
    Word("anew", r"\banew\b", "again, or new"),
    Word("at hand", r"\bat hand\b", "available, given or installed"),
    Word(
        "go on",
        r"\b(?:go(?:es|ing|ne)?|went) on\b(?! (?:the|top|its|from the)\b)",
        "continue, or resume of a run",
    ),
    Word("look (noun)", _LOOK_AS_NOUN, "sampling pass, check or preflight check"),
    Word("look whether", r"\blook(?:s|ed|ing)? (?:whether|if)\b", "check that, or check whether"),
    Word("rung", r"\brungs?\b", "stage"),
    Word("twin", r"\btwins?\b", "copy, or counterpart"),
    Word("amiss", r"\bamiss\b", "invalid, or wrong"),
    Word("is there already", r"\b(?:is|are) (?:there already|already there)\b", "already exists"),
    Word(
        "surely fewer",
        r"\bsurely (?:fewer|less|more|better|worse|below|above)\b",
        "significantly, or the interval's bound is below",
    ),
    Word("share its turns out", r"\bshares? its turns out\b", "split across examples"),
    Word(
        "stand",
        r"(?<![-\w])(?:stands?|stood|standing)\b(?!-| (?:for|out|up|by)\b)",
        "is in, comes before, or is at",
        READ_BY_USERS,
    ),
    Word(
        "behind",
        r"\bbehind\b(?! (?:an? |the )?(?:load balancer|API|proxy|firewall|scenes)\b)",
        "after",
        READ_BY_USERS,
    ),
    Word(
        "told",
        r"\b(?:(?:is|are|was|were|be|been|not) told|told (?:by|apart))\b",
        "known, reported, recognised, set or separated",
        READ_BY_USERS,
    ),
    Word("is said", r"\b(?:is|are|was|were) said\b", "is reported, or a note says", READ_BY_USERS),
    Word("more than once", r"\bstands? in the data\b", "duplicate rows", READ_BY_USERS),
    Word("the copies", r"\bunless their weight is meant\b", "unless oversampling is intended"),
    Word("nothing stands", r"\bnothing stands in\b", "`NAME` is null or empty"),
    Word("good answers", r"\bgood answers\b", "well-formed answers", (MESSAGES,)),
    Word("runs to the limit", r"\bruns? to (?:the|its) limit\b", "hit max_new_tokens", (MESSAGES,)),
    Word("nats a token", r"\bnats a token\b", "nats/token"),
    Word("part at character", r"\bpart at character\b", "diverge at character"),
    Word("change is there", r"\bchange is there\b", "change is preserved", READ_BY_USERS),
    Word("read back", r"\bthat was read back\b", "reloaded", READ_BY_USERS),
    Word("by its place", r"\bby its place, not by its id\b", "by the attention mask"),
    Word("install apart", r"\binstall (?:that|it|them) apart\b", "in a separate environment"),
    Word("what is known", r"\bwhat is known of it\b", "run details", (PAGES, MESSAGES)),
    # What three strangers marked again and again on pages that had passed the list so far (2026-11-30).
    Word("of one's own", r"\bof one's own\b", "your own, or hand-written", READ_BY_USERS),
    Word(
        "silent",
        r"\b(?:(?:is|are|stays?|remains?) silent|silent (?:on|of|where|in|for))\b",
        "does not fire, or does not report",
        READ_BY_USERS,
    ),
    Word(
        "it speaks", r"\b(?:it|they|the rule) speaks?\b", "it fires, or it reports", READ_BY_USERS
    ),
    Word("by right", r"\bby right\b", "rightly", READ_BY_USERS),
    Word("in the place of", r"\bin (?:the )?place of\b", "instead of", READ_BY_USERS),
    Word("dealt", r"\bdealt (?:out|in turn|to|back)\b|\bdeal them\b", "split", READ_BY_USERS),
    Word("by heart", r"\bby heart\b", "memorised", READ_BY_USERS),
    Word(
        "another one than",
        r"\banother one than\b",
        "a different one from, or not the one",
        READ_BY_USERS,
    ),
    Word(
        "is no mean", r"\bis no (?:mean|number|list)\b(?! (?:of|to)\b)", "is not a", READ_BY_USERS
    ),
    Word(
        "drawn answers", r"\bdrawn answers?\b|\bdraw at\b", "sampled, or sample at", READ_BY_USERS
    ),
    Word("a trial", r"\b(?:this is|in) a trial\b", "a test run", READ_BY_USERS),
    Word(
        "for all that",
        r"\bfor all that\b|\b(?:falls?|changes?|measured|learned|read) all the same\b",
        "still, or anyway",
        READ_BY_USERS,
    ),
    Word("the template refuses", r"\btemplate refuses\b", "the template raises on", READ_BY_USERS),
)
_PATTERNS = tuple((word, re.compile(word.pattern.replace(" ", r"\s+"), re.I)) for word in WORDS)

RIGHT: dict[tuple[str, str], str] = {
    ("src/truetune/checks/evaluation/two_models_answer_alike.py", "twin"): "a key of its example",
    ("src/truetune/checks/rows/encoded_text.py", "stand"): "a station of an example stands",
    ("src/truetune/checks/rows/encoded_text.py", "behind"): "a place in an example",
    (
        "src/truetune/checks/serving/server_builds_another_prompt.py",
        "stand",
    ): "a cause of an example",
    ("src/truetune/report/page/json_of_one_examples_tokens.py", "twin"): "a JSON key",
    ("src/truetune/checks/explaining/guides.py", "good answers"): "what users say of their model",
    ("src/truetune/checks/explaining/guides.py", "go on"): "what users say of their model",
    (
        "src/truetune/auditing/collect_live_objects_of_script.py",
        "stand",
    ): "a lighthouse of an example stands",
    ("src/truetune/logs/console/step_pace.py", "behind"): "a group of a pattern",
    ("src/truetune/troubleshooting/rank_causes.py", "go on"): "what users say of their model",
}
"""(path, name of the word) -> why its use there is right"""


def find_words(texts: Iterable[Text]) -> Iterator[Hit]:
    """The words of the list in some texts.

    Args:
        texts: What is checked.

    Returns:
        Each use, in the order of the texts; without those that RIGHT names.
    """
    for text in texts:
        for word, pattern in _PATTERNS:
            if text.kind not in word.where or (text.path, word.name) in RIGHT:
                continue
            for match in pattern.finditer(text.text):
                line = text.line + text.text.count("\n", 0, match.start())
                yield Hit(text.path, line, word, match[0])


@cache
def read_texts() -> tuple[Text, ...]:
    """Every text of the project that users may read: pages, messages and docstrings.

    Returns:
        The pages whole, and the strings of the sources that hold a space.
    """
    with without_collections():
        return tuple(_read_texts())


def _read_texts() -> Iterator[Text]:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        name = path.relative_to(ROOT).as_posix()
        if name not in NOT_CHECKED and not name.startswith(_GENERATED):
            yield Text(name, 1, PAGES, path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        yield from read_strings(path.relative_to(ROOT).as_posix(), source)


def read_strings(path: str, source: str) -> Iterator[Text]:
    """The strings of a module that hold a space, each as a message or a docstring.

    Args:
        path: What the texts name as their file.
        source: The module.

    Returns:
        One text for each string; the fixed pieces of an f-string apart.
    """
    documents = set()
    for node in ast.walk(ast.parse(source)):  # a node comes before what it holds
        if isinstance(node, ast.Expr):
            documents.add(id(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            kind = DOCSTRINGS if id(node) in documents else MESSAGES
            if kind == DOCSTRINGS and _RULE_PAGE in node.value:
                kind = PAGES
            yield Text(path, node.lineno, kind, node.value)


def read_left() -> Counter[tuple[str, str]]:
    """(path, name of the word) -> how many uses `words_left.txt` still allows."""
    lines = LEFT.read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return Counter({(path, name): int(count) for path, name, count in rows})


def main() -> int:
    """Write `words_left.txt` again, where no word is used more often than it says.

    Returns:
        0; 1 where a word's total has grown, and then nothing is written.
    """
    now = Counter((hit.path, hit.word.name) for hit in find_words(read_texts()))
    total: Counter[str] = Counter()
    for (_, name), count in now.items():
        total[name] += count
    for (_, name), count in read_left().items():
        total[name] -= count
    grown = sorted(name for name, count in total.items() if count > 0)
    if grown:
        print("used more often than before:", ", ".join(grown))
        return 1
    head = "# Uses of words of tests/words.py that are left. Written by `python -m tests.words`.\n"
    rows = (f"{path}\t{name}\t{count}\n" for (path, name), count in sorted(now.items()))
    LEFT.write_text(head + "".join(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
