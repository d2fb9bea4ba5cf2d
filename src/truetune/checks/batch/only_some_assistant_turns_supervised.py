"""Only some of the assistant's turns have labels, for example the last one.

## What it does
Takes the conversations with several assistant turns in the first batches, and counts by turn how many have labels.
Turns that belong to the prompt by their row (prompt/completion, pairs), or that the row itself masks, do not count. It
is info if the rows are not known.

## Why it is bad
A model that was trained only on last turns is weaker in the middle of a conversation, and most of the data is not used.
Often the code searches for the answer's text or marker and finds only one of them.

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
There is no automatic fix: give every assistant turn labels. If you want only the last turn in the loss, use `--ignore
only-some-assistant-turns-supervised`.

## References

- axolotl-ai-cloud/axolotl#1761, axolotl-ai-cloud/axolotl#3098, NVIDIA-NeMo/Speech#16284, huggingface/trl#1282
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import groupby

from truetune.checks.batch.evidence.answer_spans import Answer, answers_in_recognised_lines
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule

MAX_SHOWN_TURNS = 6
"""Turns that are counted one by one"""
PREFERENCE_METHODS = ("dpo", "kto", "orpo", "reward")
MAY_BE_PROMPTS = "the rows are not known: the turns without a label may be their prompts"


class OnlySomeAssistantTurnsSupervised(BatchRule):
    code = "BAT008"
    fault = Fault.ANSWERS_MISSING_FROM_LOSS
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        if self.subject.kind in PREFERENCE_METHODS:
            return
        chats = self._conversations_with_several_turns
        wrong = [turns for turns in chats if not all(map(_is_learned, turns))]
        if not wrong:
            return
        missed = [turn for turns in wrong for turn in turns if not _is_learned(turn)]
        is_guess = all(map(_may_unlabelled_turns_be_prompt, wrong))
        total = sum(map(len, chats))
        yield self.finding(
            f"{len(missed)} of {total} assistant turns in conversations with several turns have no label",
            "give labels to every assistant turn: compute their positions while you build the text, do not search for"
            " them in it (TRL: assistant_only_loss=True with messages)",
            severity="info" if is_guess else "warning",
            evidence=[*_describe_counts_by_turn(chats), *([MAY_BE_PROMPTS] if is_guess else [])],
            cases=[
                Case(
                    f"{turn.sample.place}: turn {turn.turn + 1}:"
                    f" {turn.sample.text(turn.start, turn.end)!r}"
                )
                for turn in missed[:MAX_CASES]
            ],
            count=len(missed),
            total=total,
        )

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if self.subject.kind in PREFERENCE_METHODS:
            return Unmet(
                f"it is about training on answers, not on preferences ({self.subject.kind})"
            )
        return (
            None
            if self._conversations_with_several_turns
            else Unmet("it is about conversations of several answers, and none has a label")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many assistant turns have a label, in conversations of several."""
        turns = sum(map(len, self._conversations_with_several_turns))
        return make_count_measurement(
            "assistant turns in conversations with several turns that have a label", turns, turns
        )

    @cached_property
    def _conversations_with_several_turns(self) -> list[list[Answer]]:
        """The answers of each conversation of several, where one has a label."""
        chats = [
            list(turns)
            for _, turns in groupby(answers_in_recognised_lines(self.subject), _document_key)
        ]
        return [turns for turns in chats if len(turns) > 1 and any(map(_is_learned, turns))]


def _document_key(answer: Answer) -> tuple[int, int, int, int]:
    """A key that all answers of one document share."""
    return answer.sample.rank, answer.sample.batch, answer.sample.line, answer.document


def _is_learned(answer: Answer) -> bool:
    """Has a token of the answer's own text a label?"""
    return bool((answer.supervised_token_mask & answer.content_token_mask).any())


def _describe_counts_by_turn(chats: list[list[Answer]]) -> Iterator[str]:
    """How many answers of each turn are supervised, one line each: `turn 1: 0 of 8 supervised`."""
    for number in range(min(max(map(len, chats)), MAX_SHOWN_TURNS)):
        turns = [turns[number] for turns in chats if number < len(turns)]
        yield f"turn {number + 1}: {sum(map(_is_learned, turns))} of {len(turns)} supervised"


def _may_unlabelled_turns_be_prompt(turns: list[Answer]) -> bool:
    """May the turns without a label be the prompt of a single answer? Only the rows tell, which are not known."""
    return turns[0].sample.placed_by == "markers" and _is_learned(turns[-1])
