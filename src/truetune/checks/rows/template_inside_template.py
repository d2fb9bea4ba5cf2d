"""Contents contain chat template markers: the template is applied a second time.

## What it does
Looks in the contents of chats for markers of any template: control tokens of other models (`[INST]`, `<|im_start|>`,
`<start_of_turn>`, `<|eot_id|>`, `</s>`) and turn headers (`### Instruction:`, `### Response:`, `Human:`, `ASSISTANT:`).
A content counts if it begins or ends with one, as rendered text does, or contains two; code is ignored. Control tokens
of the given tokenizer are reported by `special-token-in-content`. It is an error from 50 % of the rows, a warning from
5 %, and an info below: a few may be about templates.

Prompts, completions and pairs in plain text have been rendered before, and rightly contain such markers. Of these, only
an answer with the marker of a system or user turn counts (`<|im_start|>system`, `[INST]`).

It also counts contents that hold a sentence which the chat template writes into the same row by itself, such as Llama
3.1's `Cutting Knowledge Date: December 2023` or a description of tools. Numbers and dates in it may differ.

## Why it is bad
The rows were rendered once, and the trainer renders them again. The model learns the markers as text: it writes
`[/INST]` or `</s>` as ordinary characters and continues as the user. No server stops there, because the text is not a
stop token. If an answer was rendered without its prompt, the model learns to begin with a system block. Of a sentence
that is in the content and in the template, each training prompt has two, and a served one has one.

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
Removing markers from the ends of contents is safe. A content with several turns has to be split into messages, best
from the rows before they were rendered. As plain text (`text`), such rows need no template.

## References
- https://huggingface.co/docs/transformers/chat_templating (control tokens are to be in the text once)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.base_of_rules_on_row_texts import RowText, RowTextRule, TextFault
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.patterns_telling_code_from_prose import CODE
from truetune.checks.rows.evidence.own_text_of_template import (
    find_sentence_that_stands_twice,
    own_sentences_of_template,
)
from truetune.checks.rule import Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of

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
    "no tokenizer is given: if these are its control tokens, they forge turns; if not, the model learns them as"
    " text"
)
OWN_SENTENCE = "text that the template writes itself"
SHOWN_CHARACTERS = 50
MAX_NAMED_MARKS = 3
"""Marks of a text that name its kind"""


class TemplateInsideTemplate(RowTextRule):
    code = "ROW026"
    fault = Fault.CHAT_TEMPLATE_APPLIED_TWICE
    severity = "error"
    moot_where = (
        "special-token-in-content",
        "pair-prompt-not-shared",
        "completion-repeats-its-prompt",
    )
    needs_tokenizer = False
    looks_for = "chat template markers in their contents"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        backend = setup.tokenizer.backend
        # The control tokens of the stand-in tokenizer of bytes are nobody's.
        control = () if setup.are_tokens_single_bytes else setup.tokenizer.control
        self.own = {str(backend.id_to_token(id)) for id in control} | setup.tokens_added
        # A token that somebody added for the task, and that the template never writes, marks a part of the answer.
        written = "\n".join(setup.tokenizer.templates.values())
        added = [token.content for token in backend.get_added_tokens_decoder().values()]
        self.own |= {content for content in added if content not in written}
        self.chats = self.completions = 0
        self.faulty_completions = 0
        self.own_sentences = own_sentences_of_template(setup.probes)
        self.rendered: dict[int, str] = {}
        """The texts of a batch's rows, by their identity"""

    def add_batch(self, batch: Batch) -> None:
        """Count the chats and completions of a batch, and the rows that hold the marks of a template."""
        self.chats += batch.chats
        self.completions += sum(_is_completion_in_plain_text(row) for row in batch.rows)
        if self.own_sentences:
            self.rendered = {id(row): rendering.text for row, rendering in batch.examples}
        super().add_batch(batch)
        self.rendered = {}

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
        twice = self._own_sentence_in(text, row)
        if twice is not None:
            return TextFault(OWN_SENTENCE, f"the template writes this too: {twice[:80]!r}")
        if text.is_answer:
            return None
        head = QUESTION_HEAD.match(prose) or ANSWER_HEAD.search(prose)
        return None if head is None else _fault_of_mark(head[0].strip(), prose)

    def _own_sentence_in(self, text: RowText, row: Conversation) -> str | None:
        """A sentence of a text that the chat template writes into the row too."""
        if not any(sentence.needle in text.text for sentence in self.own_sentences):
            return None
        contents = "\n".join(text_of(message.get("content")) for message in row.messages)
        rendered = self.rendered.get(id(row), "")
        return find_sentence_that_stands_twice(self.own_sentences, text.text, contents, rendered)

    def unmet(self) -> Unmet | None:
        """Unmet without chats and completions."""
        return None if self.chats or self.completions else NO_CHATS_OR_COMPLETIONS

    def findings(self) -> Iterator[Finding]:
        if not self.has_several_or_only_faulty_rows:
            return
        if self.faulty_completions == self.faulty:
            yield self._finding_on_turns_inside_plain_answers()
            return
        if self.kinds[OWN_SENTENCE] == self.faulty:
            yield self._finding_on_sentences_of_the_template()
            return
        yield self.finding(
            f"{self.faulty_row_count_in_words} contain chat template markers inside {self.faulty_texts_in_words}, so"
            f" the template is applied twice: {self.fault_kinds_with_row_counts}",
            "remove the markers from the contents, or train on the rendered rows as plain text (a `text` column),"
            " to which no template is applied",
            severity=self.severity_by_share_of_faulty_rows(error_from=ERROR_SHARE),
            evidence=[
                UNKNOWN_TOKENIZER
                if self.setup.are_tokens_single_bytes
                else (
                    "they are not control tokens of this tokenizer: the model learns them as ordinary text"
                )
            ],
            cases=self.cases,
            count=self.faulty,
            total=self.rows,
        )

    def _finding_on_sentences_of_the_template(self) -> Finding:
        """The finding that contents hold what the template writes by itself."""
        return self.finding(
            f"{self.faulty_row_count_in_words} contain text in {self.faulty_texts_in_words} that the chat template"
            " writes as well: it is rendered twice",
            "remove it from the contents; the template adds it to each chat, in serving too",
            severity=self.severity_by_share_of_faulty_rows(error_from=ERROR_SHARE),
            evidence=["no served prompt has it twice, unless the client sends it too"],
            cases=self.cases,
            count=self.faulty,
            total=self.rows,
        )

    def _finding_on_turns_inside_plain_answers(self) -> Finding:
        """The finding that answers in plain text hold turns of the system or the user."""
        return self.finding(
            f"{self.faulty_row_count_in_words} contain chat template markers inside the answer that begin a system"
            f" or user turn: {self.fault_kinds_with_row_counts}",
            "render prompt and answer together, and split the text after the header of the last answer (rendering"
            " an answer on its own begins a new chat); or give both as messages",
            severity=self.severity_by_share_of_faulty_rows(error_from=ERROR_SHARE),
            evidence=["no answer should contain such a turn: the model learns to write one"],
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
