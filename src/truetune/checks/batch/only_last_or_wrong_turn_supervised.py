"""Of the assistant's turns in a conversation, some have labels and some have none.

## What it does

Takes the conversations of several assistant turns in the first batches, and counts by turn how many have labels. Turns
that belong to the prompt by their row (prompt/completion, pairs), or that the row itself keeps out, are not counted.

## Why it is bad

A model that was trained on last turns alone is weaker in the middle of a conversation, and most of the data is not
used. Often it is a search for the answer's text or marker that finds only one of them.

## Example

```python
given = datasets.Dataset.from_list(chats(turns=3))
made = encoded(given)
for row in made:
    last = max(i for i, label in enumerate(row["labels"][:-12]) if label == -100 and row["labels"][i + 1] != -100)
    row["labels"][:last] = [-100] * last
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), made,
                           processing_class=tokenizer)
```

## Use instead

```python
given = datasets.Dataset.from_list(chats(turns=3))
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(given),
                           processing_class=tokenizer)
```

## Fix safety

There is no automatic fix. Where only the last turn is to be learned, leave the rule out.

## References

- axolotl-ai-cloud/axolotl#1761, axolotl-ai-cloud/axolotl#3098, NVIDIA-NeMo/Speech#16284, huggingface/trl#1282
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import groupby

from truetune.checks.batch.answers import Answer, all_answers
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import MAX_CASES, BatchRule

TURNS = 6
"""Turns that are counted one by one"""
PREFERENCES = ("dpo", "kto", "orpo", "reward")
UNKNOWN = "the rows are not at hand: the turns without a label may be their prompts"


class OnlyLastOrWrongTurnSupervised(BatchRule):
    code = "BAT008"
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        if self.subject.kind in PREFERENCES:
            return
        chats = self._chats
        wrong = [turns for turns in chats if not all(map(_learned, turns))]
        if not wrong:
            return
        missed = [turn for turns in wrong for turn in turns if not _learned(turn)]
        guessed = all(
            turns[0].sample.placed_by == "markers" and _learned(turns[-1]) for turns in wrong
        )
        yield self.finding(
            f"{len(missed)} of {sum(map(len, chats))} assistant turns in conversations of several"
            " have no label",
            "supervise each assistant turn: find them by position while the text is made, not by a"
            " search in it",
            severity="info" if guessed else "warning",
            evidence=[*_by_turn(chats), *([UNKNOWN] if guessed else [])],
            cases=[
                Case(
                    f"{turn.sample.place}: turn {turn.turn + 1}:"
                    f" {turn.sample.text(turn.start, turn.end)!r}"
                )
                for turn in missed[:MAX_CASES]
            ],
            count=len(missed),
            total=sum(map(len, chats)),
        )

    def unmet(self) -> Unmet | None:
        if (lacking := super().unmet()) is not None:
            return lacking
        if self.subject.kind in PREFERENCES:
            return Unmet(
                f"it is about training on answers, not on preferences ({self.subject.kind})"
            )
        return (
            None
            if self._chats
            else Unmet("it is about conversations of several answers, and none has a label")
        )

    def figure(self) -> Measurement:
        turns = sum(map(len, self._chats))
        return counted(
            "assistant turns in conversations of several that have a label", turns, turns
        )

    @cached_property
    def _chats(self) -> list[list[Answer]]:
        """The answers of each conversation of several, where one has a label."""
        chats = [list(turns) for _, turns in groupby(all_answers(self.subject), _document)]
        return [turns for turns in chats if len(turns) > 1 and any(map(_learned, turns))]


def _document(answer: Answer) -> tuple[int, int, int, int]:
    return answer.sample.rank, answer.sample.batch, answer.sample.line, answer.document


def _learned(answer: Answer) -> bool:
    return bool((answer.supervised & answer.content).any())


def _by_turn(chats: list[list[Answer]]) -> Iterator[str]:
    """`turn 1: 0 of 8 supervised`"""
    for number in range(min(max(map(len, chats)), TURNS)):
        turns = [turns[number] for turns in chats if number < len(turns)]
        yield f"turn {number + 1}: {sum(map(_learned, turns))} of {len(turns)} supervised"
