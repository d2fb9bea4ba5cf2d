"""Instructions refer to a text that is not in the prompt.

## What it does
Looks for prompts that refer to a text ("summarize the following article", "the review below", `folgenden Text`,
`以下文章`) and contain hardly anything else: no second line, nothing after a colon, nothing in quotes, no document and
no earlier turn. It also looks for first questions that follow up on nothing ("give me a few more", "now make it
shorter", "that is wrong", "tell me more about the second point"). It also says whether a column for the text
(`input`, `context`, `text`) is empty in these rows. It is an error from 20 % of the rows, and a warning from 5 %.

A name in braces that nobody replaced (`{question}`, in system prompts too) counts as no text, unless the prompt is
about code or such names. A link or a file name instead of the text counts as no text ("Summarize this article. https://...").
Prompts about the link itself, answers that say that they can't open it, and rows with tools do not count.

## Why it is bad
The answer is about a text, or a turn, that the model has not seen: it learns to make one up, and the loss does not show
it. Usually a column was lost on the way (renamed, joined, only `instruction` was mapped), or the turns of a chat became
separate rows.

## Example
```yaml
data:
  rows: 8
  instruction: "Summarize the following article in two sentences."
  input: ""
  output: "{words}."
```

## Use instead
```yaml
data:
  rows: 8
  instruction: "Summarize the following article in two sentences."
  input: "{words_before} and {words}."
  output: "{words}."
```

## Fix safety
Read five rows. If the text is in another column or file, join it again; otherwise drop the rows. Both are safe.

## References
- tloen/alpaca-lora#45
- PhoebusSi/Alpaca-CoT#109 (turns of chats that became rows of their own)
- gururise/AlpacaDataCleaned, README ("empty inputs")
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.last_question_and_answer import last_question_and_answer
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.patterns_telling_code_from_prose import ABOUT_CODE, LOOKS_LIKE_CODE
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation, Message
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of

NO_INSTRUCTIONS = Unmet("it is about prompts in words, and no row has one")
_THING = (
    r"(?:texts?|articles?|passages?|paragraphs?|sentences?|reviews?|documents?|e-?mails?|stories|story|posts?|essays?"
    r"|poems?|conversations?|dialogues?|transcripts?|reports?|abstracts?|contracts?|quotes?|comments?|tweets?|letters?"
    r"|codes?|functions?|snippets?|data|tables?|lists?|sets?|words?|numbers?|phrases?|statements?|questions?|context)"
)
_ANY = r"(?:an?|one|two|three|four|five|some|any|with|by|the|that|these|of)"
"""Words after `given` where it speaks of any text: "given a list, write a function" """
POINTERS = (
    # "the following short article"; "following" alone may be a verb of time.
    re.compile(
        rf"\b(?:following|given|provided|below|above)\s+(?!{_ANY}\b)(?:[\w'-]+\s+){{0,2}}?{_THING}\b",
        re.I,
    ),
    re.compile(
        rf"\b(?:the|this|these)\s+(?:[\w'-]+\s+)?{_THING}\s+(?:below|above|provided)\b", re.I
    ),
    re.compile(r"\b(?:folgende[mnrs]?|untenstehende[mnrs]?)\s+(?:\w+\s+)?[A-ZÄÖÜ]\w+"),
    re.compile(
        r"\b(?:texte|article|passage|phrase|paragraphe)s?\s+(?:suivante?s?|ci-dessous)\b", re.I
    ),
    re.compile(r"\bsiguientes?\s+(?:texto|art[ií]culo|oraci[oó]n|p[aá]rrafo|frase)s?\b", re.I),
    re.compile(
        r"(?:以下|下面|下列)(?:这?[段篇个条首句])?(?:的)?(?:文章|文本|文字|段落|句子|内容|评论|对话|代码|邮件|新闻)"
    ),
)
_POLITE = (
    r"(?:(?:please|ok|okay|now|and|then|can you|could you|would you|i want you to|hmm|well)[, ]+)*"
)
_IT = r"(?:it|that|this|them)"
FOLLOW_UPS = (
    re.compile(rf"{_POLITE}(?:continue|keep going|carry on|proceed)(?: please| with {_IT})?", re.I),
    re.compile(
        rf"{_POLITE}(?:(?:give|show|tell|list|write|generate|suggest|name) (?:me |us )?)?(?:a few|some|\w+)? ?"
        r"(?:more|others)(?: \w+)?(?: please)?",
        re.I,
    ),
    re.compile(
        rf"{_POLITE}(?:give me |show me |try |do |generate |write )?(?:another|again|once more)"
        r"(?: one| example| time)?",
        re.I,
    ),
    re.compile(
        rf"{_POLITE}(?:make|rewrite|translate|shorten|expand|explain|summari[sz]e|simplify|rephrase|improve|fix|convert"
        rf"|change|turn|put|format|add|elaborate on|say|redo|repeat) {_IT}(?: [\w'-]+){{0,8}}",
        re.I,
    ),
    re.compile(
        r"(?:no|but)?,? ?(?:that|this|it)(?:'s| is| was)(?: still)? (?:wrong|not (?:right|correct|what).*|incorrect)",
        re.I,
    ),
    re.compile(
        r"(?:why|why not|how so|are you sure|what do you mean|yes please|no thanks?|in more detail)",
        re.I,
    ),
    re.compile(
        r"(?:[\w',-]+ ){0,8}(?:the|your) (?:first|second|third|last|previous) (?:one|option|point|example|answer|idea)"
        r"(?: [\w',-]+){0,4}",
        re.I,
    ),
)
"""A whole first question that follows up on a turn before it"""
# A text that is there stands after a colon or a line end, or in quotes.
HELD_TEXT = re.compile(r"[:：]\s*\S|\n\s*\S|[\"'“”«»「『`][^\"“”«»」』`]{12,}|\S\s*[\[({<]\S")
LINK = re.compile(
    r"<?(?:https?://|www\.)[^\s>]+>?|\b(?:[\w-]+\.)+[a-z]{2,6}/[\w./?=&%-]+"
    r"|\bdoi:\s?\S+|[\w./\\-]+\.(?:pdf|docx?|txt|html?|md|epub|pptx?)\b",
    re.I,
)
"""A link, or the name of a file with a text"""
LABELLED_LINK = re.compile(
    rf"(?:\b(?:url|link|source|input|article|text|page|document|file)\s?[:\uff1a]\s*)?(?:{LINK.pattern})",
    re.I,
)
"""A link with what prompts write in front of one: `URL: https://...`"""
WORK_ON_TEXT = re.compile(
    r"\b(?:this|the|that|following|given)\s+(?:[\w'-]+\s+){0,2}?"
    r"(?:texts?|articles?|passages?|documents?|posts?|essays?|stor(?:y|ies)|reports?|papers?|stud(?:y|ies)|abstracts?"
    r"|transcripts?|interviews?|speech|chapters?|reviews?|news|(?:web ?)?pages?|blogs?|videos?|authors?)\b"
    r"|\bsummar(?:y|i[sz])|\btl;?dr\b|\bcondense\b|\bkey (?:points|takeaways|ideas)"
    r"|\bmain (?:points?|ideas?|arguments?)"
    r"|\btranslat|\bparaphras|\bproofread"
    r"|zusammenfass|\bfass\w*\b.{1,80}\bzusammen|\b\u00fcbersetz|\br\u00e9sum|\btradui|\bresum[aei]|\btradu[cz]"
    r"|\briassum|\btradurre|\u043a\u0440\u0430\u0442\u043a|\u043f\u0435\u0440\u0435\u0432\u0435\u0434"
    r"|\u603b\u7ed3|\u6982\u62ec|\u6458\u8981|\u7ffb\u8bd1|\u8981\u7d04|\u7ffb\u8a33|\uc694\uc57d|\ubc88\uc5ed",
    re.I,
)
"""Words of a prompt that asks for work on a text"""
ABOUT_LINK = re.compile(
    r"\b(?:urls?|(?:hyper)?links?|domains?|address(?:es)?|cit(?:e|ation|ing)|reference|download|embed|bookmark|share"
    r"|curl|wget|scrap\w*|crawl\w*|pars\w*|code|script|python|html|seo|path|file ?names?|phish\w*|shorten)\b"
    r"|\u94fe\u63a5|\u7f51\u5740",
    re.I,
)
"""Words of a prompt whose subject may be the link itself"""
CANNOT_OPEN = re.compile(
    r"(?:can(?:no|['\u2019])t|can not|unable to|not able to)\W+(?:\w+\W+){0,2}?"
    r"(?:open|access|browse|visit|read|view|click|follow)",
    re.I,
)
PLACEHOLDER = re.compile(
    r"(?<![{$\w\\%^_])(?:\{\{?\s*[A-Za-z_]\w{1,30}\s*\}?\}|\$\{[A-Za-z_]\w{1,30}\})(?![}{\w])"
)
"""A name that nobody replaced by its text: `{question}`"""
MAX_CHARACTERS_WITH_LINK = 1_000
"""Characters of a prompt that is searched for links: the instruction that is allowed, and a long link"""
MIN_ANSWER_WORDS = 6
"""Words of an answer that tells what a text says; a label may be read off the link"""
MAX_WORDS = 45
"""Words of a prompt that may be an instruction alone. Chosen: a text that is worked on is longer in most rows"""
MIN_TEXT_WORDS = 4
"""Words after the instruction that may be its text: "Be brief." is none"""
SYSTEM_ROLES = ("system", "developer")
MAX_OTHER_CHARACTERS = 200
"""Characters of a system prompt, which may hold the text as well"""
INPUT_COLUMNS = frozenset(
    (
        "input", "inputs", "context", "text", "passage", "document", "article", "content", "source", "paragraph",
        "knowledge", "query_context", "input_text",
    )
)  # fmt: skip
# Chosen: one row in a hundred of Alpaca's 52,000 speaks of a text that nobody gave.
ERROR_SHARE, WARNING_SHARE, MIN_ROWS = 0.2, 0.05, 5


class InstructionsLackTheirText(DataRule):
    code = "ROW074"
    fault = Fault.PROMPTS_UNDERDETERMINE_ANSWERS
    symptoms = ("nothing-is-learned", "garbage-output")
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.lacking = self.links = 0
        self.empty_columns: Counter[str] = Counter()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of a batch whose instruction speaks of a text that is not there."""
        for row in batch.rows:
            prompt = _question_if_no_context_precedes_answer(row)
            place = _unfilled_place(_texts_before_first_answer(row), row)
            if prompt is None and place is None:
                continue
            self.rows += 1
            link = None if prompt is None else _link_in_place_of_text(prompt, row)
            words = None if prompt is None else _words_pointing_to_missing_text(prompt)
            pointer = link or place or words
            if pointer is None:
                continue
            self.lacking += 1
            self.links += link is not None
            self.empty_columns.update(_empty_input_columns(row))
            if len(self.cases) < MAX_CASES:
                self.cases.append(
                    case_in_row(batch, row, f"{pointer!r} is all that the prompt has of the text")
                )

    def unmet(self) -> Unmet | None:
        """Unmet without prompts."""
        return None if self.rows else NO_INSTRUCTIONS

    def measurement_if_clean(self) -> Measurement:
        """How many instructions speak of a text that is not there."""
        return make_count_measurement(
            "prompts that speak of a text and do not hold it", self.lacking, self.rows
        )

    def findings(self) -> Iterator[Finding]:
        share = self.lacking / max(1, self.rows)
        if share < WARNING_SHARE or self.lacking < min(MIN_ROWS, self.rows):
            return
        column = next((name for name, _ in self.empty_columns.most_common(1)), "")
        empty = f"; `{column}` is empty in {self.empty_columns[column]:,} of them" if column else ""
        links = f"; {self.links:,} give only a link or a file name" if self.links else ""
        yield self.finding(
            f"{self.lacking:,} of {self.rows:,} prompts refer to a text that they do not contain{empty}{links}: the"
            " model learns to make up the text",
            self._remedy(column),
            severity="error" if share >= ERROR_SHARE else "warning",
            cases=self.cases,
            count=self.lacking,
            total=self.rows,
        )

    def _remedy(self, column: str) -> str:
        """What to do: rows with links have their text elsewhere."""
        if 2 * self.links > self.lacking:
            return "put the text itself where the link is, in the script that writes the rows, or drop these rows"
        column = column or "the column with the text"
        return f"fill {column} again in the script that writes the rows, or drop these rows"


def _question_if_no_context_precedes_answer(row: Conversation) -> str | None:
    """The text of the first question, where besides it only short system texts precede its answer, or the prompt of
    plain text; None where there is more.
    """
    if row.documents or row.tools:
        return None
    if not row.is_chat:
        return row.prompt or None
    before_answer = list(
        takewhile(lambda message: message.get("role") != "assistant", row.messages)
    )
    others = [one for one in before_answer if one.get("role") not in SYSTEM_ROLES]
    if _has_long_system_text(before_answer) or len(others) != 1 or others[0].get("role") != "user":
        return None
    content = others[0].get("content")
    # A picture or a file in a part of the content may be what is meant.
    return (content or None) if isinstance(content, str) else None


def _texts_before_first_answer(row: Conversation) -> str:
    """The system texts and the first question of a row, or its prompt."""
    if not row.is_chat:
        return row.prompt or ""
    before_answer = takewhile(lambda message: message.get("role") != "assistant", row.messages)
    roles = (*SYSTEM_ROLES, "user")
    return "\n".join(
        text_of(one.get("content")) for one in before_answer if one.get("role") in roles
    )


def _has_long_system_text(messages: list[Message]) -> bool:
    """Is a system prompt among messages so long that it may hold the text that is meant?"""
    return any(
        len(text_of(message.get("content"))) > MAX_OTHER_CHARACTERS
        for message in messages
        if message.get("role") in SYSTEM_ROLES
    )


def _link_in_place_of_text(prompt: str, row: Conversation) -> str | None:
    """The link that a prompt has instead of the text to work on, where the answer tells what the text says."""
    link = LINK.search(prompt) if len(prompt) <= MAX_CHARACTERS_WITH_LINK else None
    if link is None:
        return None
    rest = LABELLED_LINK.sub(" ", prompt).strip()
    is_short = len(rest.split()) <= MAX_WORDS and len(rest) <= 8 * MAX_WORDS
    if not is_short or HELD_TEXT.search(rest) or ABOUT_LINK.search(rest):
        return None
    if not WORK_ON_TEXT.search(rest):
        return None
    _, answer = last_question_and_answer(row)
    is_told = answer is not None and not CANNOT_OPEN.search(answer)
    # Texts in scripts without spaces are one word: their characters count.
    is_long = answer is not None and max(len(answer.split()), len(answer) // 8) >= MIN_ANSWER_WORDS
    return link[0] if is_told and is_long else None


def _unfilled_place(prompt: str, row: Conversation) -> str | None:
    """The name in braces that a prompt has instead of its text; None where the prompt is about such names."""
    match = PLACEHOLDER.search(prompt) if "{" in prompt else None
    if match is None:
        return None
    rest = PLACEHOLDER.sub(" ", prompt)
    _, answer = last_question_and_answer(row)
    is_meant = (
        ABOUT_CODE.search(rest) or LOOKS_LIKE_CODE.search(rest) or "`" in prompt or "\\" in prompt
    )
    return None if is_meant or (answer and match[0] in answer) else match[0]


def _words_pointing_to_missing_text(prompt: str) -> str | None:
    """The words that point to a text or to a turn before, where the prompt holds none."""
    if len(prompt.split()) > MAX_WORDS or len(prompt) > 8 * MAX_WORDS:
        return None
    bare = prompt.strip()
    if any(pattern.fullmatch(bare.rstrip(" .?!")) for pattern in FOLLOW_UPS):
        return bare
    for pattern in POINTERS:
        match = pattern.search(bare)
        if match is not None:
            is_held = HELD_TEXT.search(bare) or _does_text_follow_instruction(bare[match.end() :])
            return None if is_held else match[0]
    return None


def _does_text_follow_instruction(rest: str) -> bool:
    """Follows a text on the sentence of an instruction, joined to it or of some words?"""
    _, end, more = re.split(r"([.?!。？！]|$)", rest, maxsplit=1)
    is_joined = bool(more) and not more[0].isspace() and more[0] not in ".?!"
    return bool(end) and (is_joined or len(more.split()) >= MIN_TEXT_WORDS)


def _empty_input_columns(row: Conversation) -> set[str]:
    """The columns for a text that the row of the file has, with nothing in them."""
    return {
        name
        for name, value in (row.raw or {}).items()
        if name.casefold() in INPUT_COLUMNS and (value is None or not str(value).strip())
    }
