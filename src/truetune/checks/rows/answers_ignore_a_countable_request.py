"""Prompts ask for a number of items or words, a table, a list, a language or a name in code, and answers differ.

## What it does
Compares what a prompt asks for, as far as a program can tell it, with its answer:

- `List 5 ...`, `Give three ...`: the items of the list in the answer,
- `in one sentence`: three sentences or more,
- `in 50 words`, `at most 50 words`: more than twice as many words, or less than a third of `in 50 words`,
- `a Python function`, `in JavaScript`: code of another language,
- `in a table`, `as bullet points`: an answer without a table, without a list,
- `assert area(2) == 4`, ``a function called `area` ``: code that lacks this name,
- `CREATE TABLE orders ...`: a query that is about other tables alone,
- `Translate: ... 1,250 ...`: a translation that lacks most numbers of its text.

It fires for each kind from 15 % of the prompts that ask so, and five. In a published set of 999 instructions none of
54 lists differs.

## Why it is bad
The model learns that such requests mean nothing: it follows no limit after the training, though the base model did.
Usual causes are instructions that were rewritten after the answers, answers that were cut, and columns of other rows.

## Example
```yaml
data:
  - {copies: 6, of: {instruction: "List 5 fruits.", output: "1. apple\\n2. pear\\n3. plum"}}
```

## Use instead
```yaml
data:
  - {copies: 6, of: {instruction: "List 3 fruits.", output: "1. apple\\n2. pear\\n3. plum"}}
```

## Fix safety
It is safe to drop these rows, or to write the number that the answer has into the prompt.

## References
- Zhou et al. 2023, Instruction-Following Evaluation for Large Language Models (arXiv 2311.07911)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import learned_answers_of_row
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.is_wrong_column_learned import last_user_text
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.patterns_telling_code_from_prose import LOOKS_LIKE_CODE
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

NUMBERS = {
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
}
ITEMS = re.compile(
    r"^(?:please )?(?:list|name|give(?: me)?|suggest|provide|write|generate|describe|identify)(?: me)?(?: a list of)?"
    r"(?: the)?(?: top)? (\d{1,2}|two|three|four|five|six|seven|eight|nine|ten) (?!(?:sentences?|words?|paragraphs?|"
    r"lines?|characters?|stanzas?|minutes?|pages?|steps?|or|to)\b)(?![-\u2013]|word|line|letter)",
    re.IGNORECASE,
)
ITEM = re.compile(r"^[ \t]{0,1}(?:\*\*)?(?:\d{1,2}[.)]|[-*\u2022])(?:\*\*)?[ \t]+\S", re.MULTILINE)
FIRST_ITEM_BEHIND_WORDS = re.compile(r"[^\n]*[^\s*]\s+(?:\*\*)?1[.)][ \t]")
ONE_SENTENCE = re.compile(
    r"\b(?:in|using|with) (?:one|a single|1) (?:short |concise )?sentence\b|\bone-sentence\b", re.I
)
SENTENCE_END = re.compile(r"[a-z\d)\"'][.!?][\"')]?(?=\s+[A-Z\"'(]|\s*\Z)")
WORDS = re.compile(
    r"\b(in|within|at most|up to|under|fewer than|less than|no more than|maximum of|exactly) (\d{1,3}) words\b",
    re.I,
)
LANGUAGES = {
    "python": re.compile(r"^\s*(?:def \w+\(.*\).*:|import \w+|from \w+ import |print\()", re.M),
    "javascript": re.compile(
        r"^\s*(?:(?:async )?function \w*\(|const \w+ = |let \w+ = |console\.log\(|export )", re.M
    ),
    "java": re.compile(r"^\s*(?:public (?:static |final )*\w+|System\.out|import java)", re.M),
    "c or c++": re.compile(r"^\s*(?:#include\b|int main\()", re.M),
    "go": re.compile(r"^\s*(?:package \w+|func \w+\()", re.M),
    "rust": re.compile(r"^\s*(?:fn \w+\(|let mut |use std::|println!)", re.M),
    "php": re.compile(r"^\s*<\?php", re.M),
}
# After these words alone: `go` and `c` are words and letters too.
LANGUAGE_NAMES = re.compile(
    r"\b(?:in|using|an?) (?:simple |short |plain |basic |recursive )?(?:(?P<python>python)\b|"
    r"(?P<javascript>java ?script|typescript|node(?:\.js)?|react|jsx?|html)\b|(?P<java>java)\b|"
    r"(?P<c>c\+\+|c#|c)(?![\w+#'-])|(?P<go>golang|go)\b|(?P<rust>rust)\b|(?P<php>php)\b|"
    r"(?P<other>ruby|kotlin|swift|scala|perl|lua|bash|shell|sql|matlab|julia|haskell|pseudo ?code)\b)"
    r"|\b(?P<translated>translate|convert|port|rewrite)\b",
    re.IGNORECASE,
)
GROUP_NAMES = {"c": "c or c++"}
ASKS_FOR_TABLE = re.compile(
    r"\b(?:in|as|into|using|with|create|make|generate|draw|produce|give me) (?:the form of )?an? "
    r"(?:[\w-]+ ){0,2}?table\b(?! (?:tennis|of contents|called|named|spoon|top|salt|lamp|for \d|with (?:the )?columns))"
    r"|\bmarkdown table\b|\btabular (?:form|format)\b",
    re.I,
)
ABOUT_TABLES = re.compile(
    r"\bsql\b|html|latex|database|schema|python|code|query|restaurant|furniture|wood|excel|css",
    re.I,
)
TABLE = re.compile(
    r"^[^\n|]*\|[^\n|]*\|.*$|^[^\n|]+\|[^\n|]+$|<table|\\begin\{tabular|^[^\n\t]+\t[^\n]+$|^[+\u2500-\u257f-]{5,}",
    re.M,
)
ASKS_FOR_BULLETS = re.compile(
    r"\b(?:as|in|using|with|into|of) (?:an? )?(?:[\w-]+ ){0,2}?bullet(?:ed)?[ -]?(?:points?|lists?|form|format|s)?\b"
    r"|\bbullet(?:ed)?[ -]?(?:points?|list) (?:format|form|summary|list)\b",
    re.I,
)
LIST_LINE = re.compile(
    r"^[ \t]*(?:[-*+\u2022\u2013\u25cf\u25aa\u25e6\u2023\u00b7]|\(?\w{1,2}[.)]|#)[ \t]*\S|<li>|\\item",
    re.M,
)
NAMED_IN_ASSERT = re.compile(r"^[ \t]*assert[ \t]+(?:\w+\()?\(?[ \t]*([a-z_]\w+)\(", re.M)
NAMED_IN_WORDS = re.compile(
    r"\b(?:function|method|class)\s+(?:called|named)\s+[`'\"]?([A-Za-z_]\w+)[`'\"]?(?=[\s.,:;()`'\"]|\Z)"
    r"|\b(?:function|method|class)\s+`([A-Za-z_]\w+)(?:\([^`\n]*\))?`"
)
CALLED_BY_PYTHON = frozenset(
    ("all", "any", "sorted", "set", "list", "len", "sum", "isinstance", "round", "abs", "math", "tuple", "str", "not",
     "dict", "max", "min", "type", "hasattr", "callable", "candidate", "repr", "int", "float")
)  # fmt: skip
DEFINES = re.compile(
    r"^[ \t]*(?:async )?(?:def|class|function|func|fn|public|private|static)\b|=>|= lambda\b", re.M
)
SCHEMA_TABLE = re.compile(r"\bCREATE TABLE (?:IF NOT EXISTS )?[\[`\"]?(?:\w+\.)?(\w+)", re.I)
QUERIED_TABLE = re.compile(r"\b(?:FROM|JOIN|UPDATE|INTO)\s+[\[`\"]?(?:\w+\.)?([A-Za-z_]\w*)", re.I)
NAMED_IN_QUERY = re.compile(r"\b(\w+)\s+AS\s*\(|\bAS\s+(\w+)", re.I)
ASKS_FOR_TRANSLATION = re.compile(
    r"\btranslate\b[^\n]{0,60}\b(?:to|into|in|from)\b|\b\u00fcbersetz\w*\b|\btradui\w*\b|\btraduc\w*\b|\btraduz\w*\b"
    r"|\btradurre\b|\u7ffb\u8bd1|\u7ffb\u8a33",
    re.I,
)
HEAD = 200
"""Characters of a prompt in which a translation is asked for"""
LONG_NUMBER = re.compile(r"(?<![\w.,])\d[\d.,\u00a0\u202f ]{0,30}\d(?![\w])")
# In LLaMA-Factory's Alpaca demo (999 rows) none of 54 lists and no answer of one sentence differs.
MIN_SHARE, MIN_ROWS = 0.15, 5
MIN_TOO_MANY_SENTENCES = 3
WORDS_TIMES, WORDS_PART = 2.0, 1 / 3
"""How many times as many words are too many, and which part of them is too few"""
KINDS = {
    "items": "lists have another number of items than asked for",
    "sentence": "answers have three sentences or more where one is asked for",
    "words": "answers have far more or fewer words than asked for",
    "language": "answers are code in another language than asked for",
    "table": "answers are no table, though one is asked for",
    "bullets": "answers are no list, though bullet points are asked for",
    "name": "answers are code without the function or class that the prompt names",
    "schema": "queries are about tables that the schema in the prompt lacks",
    "numbers": "translations lack the numbers of the text",
}


class AnswersIgnoreACountableRequest(DataRule):
    code = "ROW093"
    fault = Fault.TRAINING_ANSWERS_IN_WRONG_FORM
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False
    moot_where = ("answers-of-other-rows",)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.asked: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()
        self.cases: dict[str, list[Case]] = {}

    def add_batch(self, batch: Batch) -> None:
        """Compare countable requests with the answers of a batch."""
        for row in batch.rows:
            answers = [one.text for one in learned_answers_of_row(row)]
            if row.text is not None or len(answers) != 1:
                continue
            prompt = last_user_text(row) if row.is_chat else row.prompt or ""
            for kind, told in _judge_requests(prompt.strip(), answers[0]):
                self.asked[kind] += 1
                if told:
                    self._keep(kind, told, batch, row)

    def _keep(self, kind: str, told: str, batch: Batch, row: Conversation) -> None:
        """Count an answer that ignores a request."""
        self.ignored[kind] += 1
        cases = self.cases.setdefault(kind, [])
        if len(cases) < MAX_CASES:
            cases.append(case_in_row(batch, row, told))

    def unmet(self) -> Unmet | None:
        """Unmet where no prompt asks for something that can be counted."""
        if self.asked:
            return None
        return Unmet(
            "it is about prompts that ask for a number of items or words, or for a language of code"
        )

    def measurement_if_clean(self) -> Measurement:
        """How many answers ignore a countable request."""
        return make_count_measurement(
            "answers that ignore a countable request", self.ignored.total(), self.asked.total()
        )

    def findings(self) -> Iterator[Finding]:
        for kind, count in self.ignored.items():
            if count < max(MIN_ROWS, MIN_SHARE * self.asked[kind]):
                continue
            yield self.finding(
                f"{count:,} of {self.asked[kind]:,} {KINDS[kind]}",
                "drop these rows, or write into the prompt what the answer has; if answers were cut, generate them"
                " again with room",
                cases=self.cases[kind],
                count=count,
                total=self.asked[kind],
            )


def _judge_requests(prompt: str, answer: str) -> Iterator[tuple[str, str]]:
    """Each countable request of a prompt, and what differs; empty where the answer is as asked."""
    yield from _judge_number_of_items(prompt, answer)
    if ONE_SENTENCE.search(prompt):
        sentences = sum(1 for _ in SENTENCE_END.finditer(answer))
        is_long = sentences >= MIN_TOO_MANY_SENTENCES
        yield "sentence", f"one is asked for, and the answer has {sentences}" if is_long else ""
    yield from _judge_number_of_words(prompt, answer)
    yield from _judge_language(prompt, answer)
    yield from _judge_layout(prompt, answer)
    yield from _judge_name_of_function(prompt, answer)
    yield from _judge_tables_of_query(prompt, answer)
    yield from _judge_numbers_of_translation(prompt, answer)


def _judge_layout(prompt: str, answer: str) -> Iterator[tuple[str, str]]:
    """Is an answer a table or a list, where the prompt asks for one?"""
    if ASKS_FOR_TABLE.search(prompt) and not ABOUT_TABLES.search(prompt):
        yield (
            "table",
            "" if TABLE.search(answer) else "a table is asked for, and the answer has none",
        )
    if ASKS_FOR_BULLETS.search(prompt):
        has_list = LIST_LINE.search(answer) is not None
        yield "bullets", "" if has_list else "bullet points are asked for, and the answer has none"


def _judge_name_of_function(prompt: str, answer: str) -> Iterator[tuple[str, str]]:
    """Does the code of an answer have the name that tests in the prompt call, or its words give?"""
    names = set(NAMED_IN_ASSERT.findall(prompt)) - CALLED_BY_PYTHON
    if not names:
        names = {one or other for one, other in NAMED_IN_WORDS.findall(prompt)}
    if len(names) != 1 or not DEFINES.search(answer):
        return
    name = names.pop()
    is_there = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", answer) is not None
    yield "name", "" if is_there else f"the prompt names {name}, and the code does not have it"


def _judge_tables_of_query(prompt: str, answer: str) -> Iterator[tuple[str, str]]:
    """Does a query ask tables of the schema that the prompt holds?"""
    schema = {name.lower() for name in SCHEMA_TABLE.findall(prompt)}
    queried = [name.lower() for name in QUERIED_TABLE.findall(answer)]
    if not schema or not queried or "select" not in answer.lower():
        return
    own = {name.lower() for pair in NAMED_IN_QUERY.findall(answer) for name in pair if name}
    other = [name for name in queried if name not in schema | own]
    is_other = len(other) == len(queried)
    yield (
        "schema",
        f"the query is about {other[0]}, the schema has {', '.join(sorted(schema)[:3])}"
        if is_other
        else "",
    )


def _judge_numbers_of_translation(prompt: str, answer: str) -> Iterator[tuple[str, str]]:
    """Has a translation the numbers of its text? Nothing where it has no long ones."""
    if not ASKS_FOR_TRANSLATION.search(prompt[:HEAD]) or LOOKS_LIKE_CODE.search(prompt):
        return
    numbers = {re.sub(r"\D", "", number) for number in LONG_NUMBER.findall(prompt)}
    if not numbers:
        return
    written = re.sub(r"(?<=\d)[.,\u00a0\u202f ](?=\d)", "", answer)
    lost = sorted(number for number in numbers if number not in written)
    is_lost = 2 * len(lost) > len(numbers)
    yield "numbers", f"the text has {lost[0]}, and the translation lacks it" if is_lost else ""


def _judge_number_of_items(prompt: str, answer: str) -> Iterator[tuple[str, str]]:
    """Has a list as many items as are asked for? Nothing where no number of items is."""
    items = ITEMS.match(prompt)
    # The first item may have words before it.
    begins_behind_words = FIRST_ITEM_BEHIND_WORDS.match(answer) is not None
    count = sum(1 for _ in ITEM.finditer(answer)) + begins_behind_words
    if items is not None and count > 1:
        asked = NUMBERS.get(items[1].lower()) or int(items[1])
        # Items may have points of their own.
        is_right = count == asked or (count > asked and count % asked == 0)
        yield "items", "" if is_right else f"{asked} are asked for, and the list has {count}"


def _judge_number_of_words(prompt: str, answer: str) -> Iterator[tuple[str, str]]:
    """Has an answer about as many words as are asked for? Nothing where no number of words is."""
    words = WORDS.search(prompt)
    if words is not None:
        limit, given = int(words[2]), len(answer.split())
        is_short = words[1].lower() in ("in", "exactly") and given < WORDS_PART * limit
        is_other = given > WORDS_TIMES * limit or is_short
        yield "words", f"{limit} are asked for, and the answer has {given}" if is_other else ""


def _judge_language(prompt: str, answer: str) -> Iterator[tuple[str, str]]:
    """The programming language that a prompt asks for, and that of the answer's code."""
    named = {match.lastgroup or "" for match in LANGUAGE_NAMES.finditer(prompt)}
    if len(named) != 1 or named & {"other", "translated"}:
        return
    group = named.pop()
    asked = GROUP_NAMES.get(group, group)
    written = {name for name, pattern in LANGUAGES.items() if pattern.search(answer)}
    if written:
        other = ", ".join(sorted(written))
        yield (
            "language",
            "" if asked in written else f"{asked} is asked for, and the code is {other}",
        )
