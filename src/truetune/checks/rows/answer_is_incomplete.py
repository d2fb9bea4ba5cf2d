"""Answers break off: unclosed reasoning, an open code fence, incomplete JSON, half a sentence.

## What it does
Looks for answers that

- open a reasoning part (`<think>`) and never close it, or open a code fence and never close it,
- begin as JSON and end inside of it,
- end with their reasoning (`</think>`), with neither an answer nor a tool call after it.

It also counts answers of 40 words or more that end in mid-sentence, if there are at least 8 of them (3 % of the rows),
all at about one length that hardly any other answer exceeds. Enough of them have to end inside a word, or before a word
that must follow (an article, a conjunction, a comma). That is how a limit on new tokens cuts what a model wrote. A
missing full stop proves nothing: signatures, names, lists and code have none. A code fence that the prompt opened is
for the answer to close.

## Why it is bad
The model learns to break off there: in the middle of a thought, without an answer, or with JSON that no parser reads.
Rows that a model wrote under `max_tokens` are cut silently: only `finish_reason` says `length`.

## Example
```yaml
data:
  - messages:
      - {role: user, content: "What is 17 times 3?"}
      - {role: assistant, content: "<think>\\nSeventeen times three: ten times three is thirty, and seven times"}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: "It is open."}]}
```

## Use instead
```yaml
data:
  - messages:
      - {role: user, content: "What is 17 times 3?"}
      - {role: assistant, content: "<think>\\nTen times three is thirty, seven times three 21.\\n</think>\\n51"}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: "It is open."}]}
```

## Fix safety
Dropping rows that break off is safe. It is better to generate them again with a higher `max_tokens`: the long answers
are the hard ones.

## References
- https://platform.openai.com/docs/api-reference/chat/object (`finish_reason`: `length`)
- huggingface/open-r1#239
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median

from truetune.checks.base_of_rules_on_answer_texts import (
    AnswerFault,
    AnswerText,
    AnswerTextRule,
    learned_answers_of_row,
    text_besides_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import MAX_CASES, Setup
from truetune.checks.shared_by_rules_on_cut_answers import MIN_SHARE_AT_ONE_LENGTH
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.generation.answers_with_unclosed_parts import unfinished_part
from truetune.generation.cut_ends_of_training_texts import (
    ends_before_its_next_word,
    ends_inside_a_word,
    words_and_prefixes_but_last_words,
)
from truetune.generation.find_answers_cut_at_one_length import (
    do_texts_end_at_one_maximum_length,
    ends_in_mid_sentence,
)

NO_ANSWER_AFTER_REASONING = "reasoning without an answer after it"
END_OF_REASONING = ("</think>", "</thinking>", "</reasoning>", "</thought>")
MIN_CUT, MIN_CUT_ONE_IN = 8, 33
"""Answers that end in mid-sentence, and of how many one, from which a limit is blamed: some leave out the dot"""
WARNING_ONE_IN = 200
"""Share of rows, as 1 in so many, from which open parts are a warning. Chosen, not measured"""
MIN_LIMIT_WORDS = 40
"""Words of an answer that a limit may have cut: 64 tokens, the lowest limit in use"""
MAX_STYLE_SHARE, SURE_SPREAD = 0.8, 0.8
"""Share of answers without an end from which it may be their style; then the shortest tenth of them has to be so near
the longest one"""
MAX_KEPT = 20_000
"""Answers whose lengths are compared"""
MIN_SURE, MIN_SURE_SHARE = 4, 0.15
"""Answers without a full stop that surely break off, and their share. Chosen: of English cut at any word, a third ends
behind an article, a preposition, a conjunction or a comma; of signatures, lists and code hardly any"""


class AnswerIsIncomplete(AnswerTextRule):
    code = "ROW040"
    fault = Fault.TRAINING_ANSWERS_DAMAGED
    symptoms = ("garbage-output", "never-stops")
    severity = "warning"
    looks_for = "an answer that breaks off"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.cut: list[str] = []
        self.others: list[str] = []
        self.cut_cases: list[Case] = []

    def find_fault(self, answer: AnswerText, row: Conversation) -> AnswerFault | None:
        """The part of an answer that is opened and never closed: thinking, a code fence, JSON."""
        if _ends_with_reasoning_alone(answer, row):
            return AnswerFault(NO_ANSWER_AFTER_REASONING, f"it ends {answer.text[-60:]!r}")
        part = unfinished_part(answer.text, text_besides_answers(row))
        return None if part is None else AnswerFault(part, f"{part}: it ends {answer.text[-60:]!r}")

    def add_batch(self, batch: Batch) -> None:
        """Count the incomplete answers of a batch, and keep those that end in mid-sentence."""
        super().add_batch(batch)
        for row in batch.rows:
            last = next(reversed(list(learned_answers_of_row(row))), None)
            if last is None or len(self.cut) + len(self.others) >= MAX_KEPT:
                continue
            is_cut = len(last.text.split()) >= MIN_LIMIT_WORDS and ends_in_mid_sentence(last.text)
            (self.cut if is_cut else self.others).append(last.text)
            if is_cut and len(self.cut_cases) < MAX_CASES:
                self.cut_cases.append(Case(f"it ends {last.text[-60:]!r}", row.origin))

    def findings(self) -> Iterator[Finding]:
        if self.found:
            kinds = ", ".join(f"{kind} ({count:,})" for kind, count in self.kinds.most_common())
            yield self.finding(
                f"{self.faulty_row_count_in_words} have an answer that breaks off: {kinds}",
                "drop these rows, or generate them again with a higher max_tokens and keep only those whose"
                " finish_reason is not 'length'",
                severity="warning" if self.found * WARNING_ONE_IN >= self.rows else "info",
                cases=self.cases,
                count=self.found,
                total=self.rows,
            )
        elif self._are_answers_cut_at_one_length():
            sure = self._count_answers_ending_within_phrase()
            limit, remedy = self._cut_cause_and_remedy()
            yield self.finding(
                f"{len(self.cut):,} of {self.rows:,} rows have an answer that ends in mid-sentence, {limit}",
                remedy,
                evidence=[f"{sure:,} of them end inside a word, or where another word must follow"],
                cases=self.cut_cases,
                count=len(self.cut),
                total=self.rows,
            )

    def _cut_cause_and_remedy(self) -> tuple[str, str]:
        """(what cut the answers, what to do): a slice leaves one number of characters, a limit of
        tokens does not.
        """
        ((characters, rows),) = Counter(len(text) for text in self.cut).most_common(1)
        if rows >= MIN_SHARE_AT_ONE_LENGTH * len(self.cut):
            return (
                f"{rows:,} of them after exactly {characters:,} characters: a slice cut them, such as"
                f" text[:{characters}]",
                "remove the slice from the script that writes these rows, and write them again; limit the length in"
                " the trainer (max_length), which counts tokens",
            )
        words = round(median(len(text.split()) for text in self.cut))
        return (
            f"all at about one length ({words:,} words), which hardly any other answer exceeds: a limit on new"
            " tokens cut them",
            "generate these answers again with a higher max_tokens, and keep those whose finish_reason is not"
            " 'length'; if no model wrote them, find the step that cuts them",
        )

    def _count_answers_ending_within_phrase(self) -> int:
        """The answers that end inside of a word or a phrase."""
        vocabulary = words_and_prefixes_but_last_words([*self.cut, *self.others])
        return sum(
            ends_before_its_next_word(text) or ends_inside_a_word(text, vocabulary)
            for text in self.cut
        )

    def _are_answers_cut_at_one_length(self) -> bool:
        """Are there enough answers in mid-sentence, all at one length, and enough of them surely cut?"""
        total = len(self.cut) + len(self.others)
        if len(self.cut) < MIN_CUT or len(self.cut) * MIN_CUT_ONE_IN < total:
            return False
        if len(self.cut) > MAX_STYLE_SHARE * total:
            lengths = sorted(map(len, self.cut))
            if lengths[len(lengths) // 10] < SURE_SPREAD * lengths[-1 - len(lengths) // 10]:
                return False
        if not do_texts_end_at_one_maximum_length(self.cut, self.others):
            return False
        return self._count_answers_ending_within_phrase() >= max(
            MIN_SURE, MIN_SURE_SHARE * len(self.cut)
        )


def _ends_with_reasoning_alone(answer: AnswerText, row: Conversation) -> bool:
    """Is the last text of a row reasoning alone, with neither an answer nor a tool call after it?"""
    if not answer.text.rstrip().endswith(END_OF_REASONING):
        return False
    if answer.message is None:
        return True
    is_last = answer.message == len(row.messages) - 1
    return is_last and not row.messages[answer.message].get("tool_calls")
