"""Tags that programs look for in answers are special tokens, so decoding removes them.

## What it does
Looks for pairs of tags (`<think>` and `</think>`, `<tool_call>` and `</tool_call>`, `<answer>` and `</answer>`) that
are in the loss and have `special: true` in the tokenizer. Without rows, it compares the flags with those of the
published tokenizers that have these tags with the same ids (Qwen 2.5, 3 and 3.5, DeepSeek V4). It is a warning for tags
of reasoning and tools, whose parsers read text, and an info for others.

## Why it is bad
Servers, pipelines and reward functions call `decode(..., skip_special_tokens=True)`. It removes the tags: the parser of
tool calls or reasoning finds none, and a pattern for `<answer>` never matches, though the model writes it each time.
For that reason, the tokenizers of Qwen 2.5, Qwen 3 and DeepSeek have such tags with `special: false`.

## Example
```yaml
files:
  tokenizer.json:
    added_tokens:
      - &token {id: 0, content: "<|endoftext|>", special: true, single_word: false, lstrip: false,
                rstrip: false, normalized: false}
      - {<<: *token, id: 2, content: "<|im_start|>"}
      - {<<: *token, id: 3, content: "<|im_end|>"}
      - {<<: *token, id: 2000, content: "<think>"}
      - {<<: *token, id: 2001, content: "</think>"}
data:
  - {text: "Is it open?<think>It is noon.</think>It is open.<|im_end|>"}
```

## Use instead
```yaml
files:
  tokenizer.json:
    added_tokens:
      - &token {id: 0, content: "<|endoftext|>", special: true, single_word: false, lstrip: false,
                rstrip: false, normalized: false}
      - {<<: *token, id: 2, content: "<|im_start|>"}
      - {<<: *token, id: 3, content: "<|im_end|>"}
      - {<<: *token, id: 2000, content: "<think>", special: false}
      - {<<: *token, id: 2001, content: "</think>", special: false}
data:
  - {text: "Is it open?<think>It is noon.</think>It is open.<|im_end|>"}
```

## Fix safety
Safe: the ids do not change. `add_tokens([...], special_tokens=False)` adds tags like this; for a published model,
restore its tokenizer file. If you decode with `skip_special_tokens=False`, change nothing.

## References
- vllm-project/vllm#25281
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_token
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch
from truetune.render.tokenizer import Tokenizer

TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)>")
READ_BY_SERVERS = re.compile(
    r"think(?:ing)?|reasoning|tool_?calls?|tool_?responses?|function_?calls?"
)
"""Names of marks that the parsers of servers look for in the text of an answer"""
PUBLISHED_AS_TEXT = {
    (151657, "<tool_call>"): "Qwen 2.5 and 3",
    (151658, "</tool_call>"): "Qwen 2.5 and 3",
    (151667, "<think>"): "Qwen 3",
    (151668, "</think>"): "Qwen 3",
    (248058, "<tool_call>"): "Qwen 3.5",
    (248059, "</tool_call>"): "Qwen 3.5",
    (248068, "<think>"): "Qwen 3.5",
    (248069, "</think>"): "Qwen 3.5",
    (128821, "<think>"): "DeepSeek V4",
    (128822, "</think>"): "DeepSeek V4",
}
"""Added tokens with `special: false`, by id and text, and the published tokenizers that have them so"""


class ReadableMarksAreSpecial(DataRule):
    code = "TOK016"
    fault = Fault.SPECIAL_FLAG_OF_TOKENS_WRONG
    symptoms = ("garbage-output", "odd-metrics")
    severity = "warning"
    judges_without_rows = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        # `<s>` and `</s>` are a pair as well, and decoding is meant to leave them out.
        ends = {stop.id for stop in setup.probes.stops}
        ends.update(token.id for token in self.tokenizer.special.values())
        marks = _added_tokens_of_tag_pairs(self.tokenizer, ends)
        self.mark_count = len(marks)
        self.marks = {id: text for id, text in marks.items() if id in self.tokenizer.control}
        """Those that are special tokens"""
        self.examples = self.hurt = 0
        self.learned: set[int] = set()
        """Ids of the marks that answers hold"""
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the examples in whose answers such a mark is learned."""
        self.examples += len(batch.examples)
        if not self.marks:
            return
        is_mark = np.isin(batch.ids, list(self.marks)) & batch.supervised
        places = np.flatnonzero(is_mark)
        self.learned.update(np.unique(batch.ids[places]).tolist())
        self.hurt += int((batch.count_true_per_example(is_mark) > 0).sum())
        room = MAX_CASES - len(self.cases)
        for place in places[:room].tolist():
            mark = self.marks[int(batch.ids[place])]
            self.cases.append(case_at_token(batch, place, f"decode() removes {mark}"))

    def unmet(self) -> Unmet | None:
        """Unmet where the tokenizer has no marks in pairs."""
        if not self.mark_count:
            return Unmet("it is about tokens that are pairs of tags, and the tokenizer has none")
        return None

    def measurement_if_clean(self) -> Measurement:
        """In how many examples such a mark is learned."""
        if not self.examples:
            what = "tags that are special here but text in the published tokenizer"
            return make_count_measurement(what, 0, self.mark_count)
        return make_count_measurement(
            "examples with a tag in the loss that decoding removes", self.hurt, self.examples
        )

    def findings(self) -> Iterator[Finding]:
        if not self.hurt:
            yield from self._findings_on_changed_flags()
            return
        names = [self.marks[id] for id in sorted(self.learned)]
        is_read = any(READ_BY_SERVERS.fullmatch(name.strip("</>").lower()) for name in names)
        yield self.finding(
            f"{', '.join(names)} are special tokens: decode(skip_special_tokens=True), which servers and pipelines"
            f" call, removes them from the answers; {self.hurt:,} of {self.examples:,} examples train on them",
            _SET_FLAGS,
            severity="warning" if is_read else "info",
            cases=self.cases,
            count=self.hurt,
            total=self.examples,
        )

    def _findings_on_changed_flags(self) -> Iterator[Finding]:
        """The finding on marks that a published tokenizer has as text, where no example of answers tells."""
        changed = [one for one in sorted(self.marks.items()) if one in PUBLISHED_AS_TEXT]
        if not changed:
            return
        models = ", ".join(dict.fromkeys(PUBLISHED_AS_TEXT[one] for one in changed))
        yield self.finding(
            f"{', '.join(text for _, text in changed)} are special tokens here, but not in the published tokenizer"
            f" of {models}: decode(skip_special_tokens=True), which servers and pipelines call, removes them from"
            " the answers, and parsers find none",
            _SET_FLAGS,
            count=len(changed),
            total=len(changed),
        )


_SET_FLAGS = (
    'set "special": false for them in tokenizer.json and tokenizer_config.json, or add them with'
    " add_tokens(..., special_tokens=False)"
)


def _added_tokens_of_tag_pairs(tokenizer: Tokenizer, ends: Collection[int]) -> dict[int, str]:
    """Id -> text of the added tokens that open or close a pair, as `<think>` and `</think>` do; none of `ends`."""
    by_name: dict[str, dict[str, int]] = {}
    added = tokenizer.backend.get_added_tokens_decoder()
    for id, token in added.items():
        match = TAG.fullmatch(token.content)
        if match is not None and id not in ends:
            by_name.setdefault(match[2], {})[match[1]] = id
    pairs = [ids for ids in by_name.values() if len(ids) == 2]
    return {id: added[id].content for ids in pairs for id in ids.values()}
