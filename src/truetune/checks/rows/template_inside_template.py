"""Contents hold the marks of a chat template: the template is put around them a second time.

## What it does
Looks in the contents of chats for marks of any template: control tokens of other models (`[INST]`, `<|im_start|>`,
`<start_of_turn>`, `<|eot_id|>`, `</s>`), and heads of a turn (`### Instruction:`, `### Response:`, `Human:`,
`ASSISTANT:`). A content counts that begins or ends with one, as rendered text does, or that holds two of them; code is
passed over. Control tokens of the given tokenizer are `special-token-in-content`. An error where half of the rows
have them, a warning from 5 % on; of fewer a note, for they may talk of templates.

## Why it is bad
The rows were rendered once, and the trainer renders them again. The model learns the marks as text: it writes `[/INST]`
or `</s>` in words, continues as the user, and no server stops there, for the text is no stop token.

## Example
```yaml
data:
  - messages: [{role: user, content: "<s>[INST] Is it open? [/INST]"}, {role: assistant, content: "It is open. </s>"}]
  - messages: [{role: user, content: "<s>[INST] Where is it? [/INST]"}, {role: assistant, content: "On a hill. </s>"}]
```

## Use instead
```yaml
data:
  - messages: [{role: user, content: "Is it open?"}, {role: assistant, content: "It is open."}]
  - messages: [{role: user, content: "Where is it?"}, {role: assistant, content: "On a hill."}]
```

## Fix safety
Taking marks off the ends of contents is safe. A content with several turns in it has to be split into messages; that
is best done with the rows from before they were rendered. As plain text (`text`) such rows need no template.

## References
- https://huggingface.co/docs/transformers/chat_templating (control tokens are to be in the text once)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.code_text_patterns import CODE
from truetune.checks.data_unmet_reasons import NO_CHATS
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.row_text_rule import RowText, RowTextRule, TextFault
from truetune.checks.rule import Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

TEMPLATE_MARK = re.compile(
    r"<\|[A-Za-z][\w. -]{0,40}\|?>|<[a-z]+\|>|<\uff5c[^\uff5c\n]{1,40}\uff5c>"
    r"|</?(?:start|end)_of_(?:turn|role|text|sentence)>|<(?:bos|eos|pad)>|</?s>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]|<</?SYS>>"
)
"""Control tokens as the templates of the published families write them, by their forms"""
QUESTION_HEAD = re.compile(
    r"(?:#{2,3} ?(?:Instruction|Human|User|System)\b|(?:Human|USER|SYSTEM): )"
)
ANSWER_HEAD = re.compile(
    r"(?:#{2,3} ?(?:Response|Assistant|Answer|Output)|(?:^|\n)(?:Assistant|ASSISTANT|AI|Bot|Model)):?\Z"
)
"""The head that a prompt in text ends with; chats leave it to the template"""
# Chosen, not measured: half of the rows come from rows that were rendered before, not from talk
# about templates.
ERROR_SHARE = 0.5
"""Share of the rows from which it is an error"""
UNKNOWN_TOKENIZER = (
    "no tokenizer is named: one that has them as control tokens reads forged turns, and another"
    " teaches them as text"
)
SHOWN_CHARACTERS = 50
MAX_NAMED_MARKS = 3
"""Marks of a text that name its kind"""


class TemplateInsideTemplate(RowTextRule):
    code = "ROW026"
    severity = "error"
    moot_where = ("special-token-in-content",)
    needs_tokenizer = False
    looks_for = "marks of a chat template in their contents"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        backend = setup.tokenizer.backend
        # The control tokens of the stand-in tokenizer of bytes are nobody's.
        control = () if setup.are_tokens_single_bytes else setup.tokenizer.control
        self.own = {str(backend.id_to_token(id)) for id in control} | setup.tokens_added
        self.chats = 0

    def batch(self, batch: Batch) -> None:
        """Count the chats of a batch, and the rows whose contents hold the marks of a template."""
        self.chats += batch.chats
        super().batch(batch)

    def fault(self, text: RowText, row: Conversation) -> TextFault | None:
        """The marks of a chat template in the content of a message."""
        if text.message is None:
            return None
        prose = CODE.sub(" ", text.text).strip()
        marks = [mark for mark in TEMPLATE_MARK.finditer(prose) if mark[0] not in self.own]
        if marks:
            first, last = marks[0], marks[-1]
            # A mark in the middle of a text may be its subject; at an end, or beside another one,
            # it frames a turn.
            if first.start() == 0 or last.end() == len(prose) or _are_marks_of_whole_turn(marks):
                return _fault_of_mark(
                    " ".join(dict.fromkeys(mark[0] for mark in marks[:MAX_NAMED_MARKS])), prose
                )
        if text.is_answer:
            return None
        head = QUESTION_HEAD.match(prose) or ANSWER_HEAD.search(prose)
        return None if head is None else _fault_of_mark(head[0].strip(), prose)

    def unmet(self) -> Unmet | None:
        """Unmet without chats."""
        return None if self.chats else NO_CHATS

    def findings(self) -> Iterator[Finding]:
        if not self.is_more_than_one:
            return
        yield self.finding(
            f"{self.faulty_rows_of_all} hold marks of a chat template inside {self.where}: {self.shown_kinds}",
            "take the marks out of the contents, or train the rendered rows as plain text: the"
            " template is put around them a second time",
            severity=self.severity_of(error_from=ERROR_SHARE),
            evidence=[
                UNKNOWN_TOKENIZER
                if self.setup.are_tokens_single_bytes
                else "they are no control tokens of this tokenizer: the model learns them as text"
            ],
            cases=self.cases,
            count=self.faulty,
            total=self.rows,
        )


def _are_marks_of_whole_turn(marks: list[re.Match[str]]) -> bool:
    """Do marks of several kinds stand in one text, as those of a turn's begin and end do?"""
    return len({mark[0] for mark in marks}) > 1


def _fault_of_mark(mark: str, text: str) -> TextFault:
    """The fault of a text with such a mark: its beginning and end are shown."""
    excerpt = (
        text
        if len(text) <= 2 * SHOWN_CHARACTERS
        else f"{text[:SHOWN_CHARACTERS]} ... {text[-SHOWN_CHARACTERS:]}"
    )
    return TextFault(mark, f"{mark} as text: {excerpt!r}")
