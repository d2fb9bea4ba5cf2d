"""Contents hold the marks of a chat template: the template is put around them a second time.

## What it does
Looks in the contents of chats for marks of any template: control tokens of other models (`[INST]`, `<|im_start|>`,
`<start_of_turn>`, `<|eot_id|>`, `</s>`), and heads of a turn (`### Instruction:`, `### Response:`, `Human:`,
`ASSISTANT:`). A content counts that begins or ends with one, as rendered text does, or that holds two of them; code is
passed over. Control tokens of the given tokenizer are `special-token-in-content`. An error where half of the rows
have them, a warning from 5 % on; of fewer a note, for they may talk of templates.

Prompts, completions and pairs in plain text were rendered before, and hold such marks rightly. Of them an answer counts
that holds the mark of a system or user turn (`<|im_start|>system`, `[INST]`).

## Why it is bad
The rows were rendered once, and the trainer renders them again. The model learns the marks as text: it writes `[/INST]`
or `</s>` in words, continues as the user, and no server stops there, for the text is no stop token. Of an answer that
was rendered without its prompt, the model learns to begin with a system block.

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

from truetune.checks.base_of_rules_on_row_texts import RowText, RowTextRule, TextFault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.patterns_telling_code_from_prose import CODE
from truetune.checks.rule import Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

TEMPLATE_MARK = re.compile(
    r"<\|[A-Za-z][\w. -]{0,40}\|?>|<[a-z]+\|>|<\uff5c[^\uff5c\n]{1,40}\uff5c>"
    r"|</?(?:start|end)_of_(?:turn|role|text|sentence)>|<(?:bos|eos|pad)>|</?s>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]|<</?SYS>>"
)
"""Control tokens as the templates of the published families write them, by their forms"""
TURN_OF_QUESTION = re.compile(
    # Results of tools stand in turns of the user where a template has no role for them.
    r"(?:<\|(?:im_start|start_header_id|header_start|start_of_role|start|turn)\|?>|<start_of_(?:turn|role)>)"
    r"\s?(?:system|developer|user)\b(?![^\n]*\n\s*<tool_response>)"
    r"|<[|\uff5c](?:(?:system|user)|(?:SYSTEM|USER)_TOKEN|User)[|\uff5c]>"
    r"|\[(?:INST|SYSTEM_PROMPT)\]|<<SYS>>"
)
"""Beginnings of the turns that no answer holds, as the templates of the published families write them"""
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
NO_CHATS_OR_COMPLETIONS = Unmet(
    "it is about chats, and prompts with completions, and no row is one"
)
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
    moot_where = (
        "special-token-in-content",
        "pair-prompt-not-shared",
        "completion-repeats-its-prompt",
    )
    needs_tokenizer = False
    looks_for = "marks of a chat template in their contents"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        backend = setup.tokenizer.backend
        # The control tokens of the stand-in tokenizer of bytes are nobody's.
        control = () if setup.are_tokens_single_bytes else setup.tokenizer.control
        self.own = {str(backend.id_to_token(id)) for id in control} | setup.tokens_added
        self.chats = self.completions = 0
        self.faulty_completions = 0

    def add_batch(self, batch: Batch) -> None:
        """Count the chats and completions of a batch, and the rows that hold the marks of a template."""
        self.chats += batch.chats
        self.completions += sum(_is_completion_in_plain_text(row) for row in batch.rows)
        super().add_batch(batch)

    def find_fault(self, text: RowText, row: Conversation) -> TextFault | None:
        """The marks of a chat template in the content of a message."""
        if text.message is None:
            fault = _fault_of_turn_mark_in_answer(row) if text.is_answer else None
            self.faulty_completions += fault is not None
            return fault
        prose = CODE.sub(" ", text.text).strip()
        marks = [mark for mark in TEMPLATE_MARK.finditer(prose) if mark[0] not in self.own]
        if _is_mark_at_end_or_beside_another(marks, prose):
            named = dict.fromkeys(mark[0] for mark in marks[:MAX_NAMED_MARKS])
            return _fault_of_mark(" ".join(named), prose)
        if text.is_answer:
            return None
        head = QUESTION_HEAD.match(prose) or ANSWER_HEAD.search(prose)
        return None if head is None else _fault_of_mark(head[0].strip(), prose)

    def unmet(self) -> Unmet | None:
        """Unmet without chats and completions."""
        return None if self.chats or self.completions else NO_CHATS_OR_COMPLETIONS

    def findings(self) -> Iterator[Finding]:
        if not self.has_several_or_only_faulty_rows:
            return
        if self.faulty_completions == self.faulty:
            yield self._finding_on_turns_inside_plain_answers()
            return
        yield self.finding(
            f"{self.faulty_row_count_in_words} hold marks of a chat template inside"
            f" {self.faulty_texts_in_words}:"
            f" {self.fault_kinds_with_row_counts}",
            "take the marks out of the contents, or train the rendered rows as plain text: the"
            " template is put around them a second time",
            severity=self.severity_by_share_of_faulty_rows(error_from=ERROR_SHARE),
            evidence=[
                UNKNOWN_TOKENIZER
                if self.setup.are_tokens_single_bytes
                else "they are no control tokens of this tokenizer: the model learns them as text"
            ],
            cases=self.cases,
            count=self.faulty,
            total=self.rows,
        )

    def _finding_on_turns_inside_plain_answers(self) -> Finding:
        """The finding that answers in plain text hold turns of the system or the user."""
        return self.finding(
            f"{self.faulty_row_count_in_words} hold marks of a chat template inside the"
            " answer, which begin a turn of the"
            f" system or the user: {self.fault_kinds_with_row_counts}",
            "render prompt and answer together, and cut the text after the head of the last answer: a template that is"
            " put around an answer alone begins a chat; or write both as messages",
            severity=self.severity_by_share_of_faulty_rows(error_from=ERROR_SHARE),
            evidence=["no answer in serving holds such a turn: the model learns to write one"],
            cases=self.cases,
            count=self.faulty,
            total=self.rows,
        )


def _is_completion_in_plain_text(row: Conversation) -> bool:
    """Is a row a prompt with its answer, or a pair, in plain text?"""
    # Without a prompt the completion is the whole text of the row.
    return not row.is_chat and row.text is None and bool(row.prompt) and bool(row.completion)


def _fault_of_turn_mark_in_answer(row: Conversation) -> TextFault | None:
    """The mark of a system or user turn in the answer, of either side, of a row in plain text."""
    if not _is_completion_in_plain_text(row):
        return None
    for answer in (row.completion, row.rejected):
        prose = CODE.sub(" ", answer).strip() if isinstance(answer, str) else ""
        mark = TURN_OF_QUESTION.search(prose)
        if mark is not None:
            return _fault_of_mark(" ".join(mark[0].split()), prose)
    return None


def _is_mark_at_end_or_beside_another(marks: list[re.Match[str]], prose: str) -> bool:
    """Is a mark at an end of a text, or beside another one? In the middle of a text it may be its subject."""
    if not marks:
        return False
    is_at_end = marks[0].start() == 0 or marks[-1].end() == len(prose)
    return is_at_end or _are_marks_of_whole_turn(marks)


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
