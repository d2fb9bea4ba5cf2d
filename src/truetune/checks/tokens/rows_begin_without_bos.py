"""Rows begin without BOS, but the base model was trained with it on every text.

## What it does
Recognises the model families whose every training text began with BOS (Gemma, Llama 3, Mistral, DeepSeek, Command) by
their control tokens, and counts the examples with another first token. It fires from 10 % of the examples: a warning
for Gemma, an info for the others, whose loss without BOS was not measured here.

## Why it is bad
The base model has never seen a text without BOS. Gemma suffers most: the first losses are far too high, and the answers
are garbage. Others suffer less, but train on another format than they are served with. The cause is an edited tokenizer
(`add_bos_token: false`, a post-processor without BOS), a template from another family, or text that was tokenized with
`add_special_tokens=False`.

## Example
```yaml
files:
  tokenizer_config.json: {bos_token: "<bos>"}
  tokenizer.json:
    added_tokens:
      - &token {id: 0, content: "<|endoftext|>", special: true, single_word: false, lstrip: false,
                rstrip: false, normalized: false}
      - {<<: *token, id: 1, content: "<|pad|>"}
      - {<<: *token, id: 2, content: "<|im_start|>"}
      - {<<: *token, id: 3, content: "<|im_end|>"}
      - {<<: *token, id: 2000, content: "<bos>"}
      - {<<: *token, id: 2001, content: "<start_of_turn>"}
data:
  - {text: "The shop opens at nine.<|im_end|>"}
```

## Use instead
```yaml
files:
  tokenizer_config.json: {bos_token: "<bos>"}
  tokenizer.json:
    added_tokens:
      - &token {id: 0, content: "<|endoftext|>", special: true, single_word: false, lstrip: false,
                rstrip: false, normalized: false}
      - {<<: *token, id: 1, content: "<|pad|>"}
      - {<<: *token, id: 2, content: "<|im_start|>"}
      - {<<: *token, id: 3, content: "<|im_end|>"}
      - {<<: *token, id: 2000, content: "<bos>"}
      - {<<: *token, id: 2001, content: "<start_of_turn>"}
    post_processor:
      type: TemplateProcessing
      single: [{SpecialToken: {id: "<bos>", type_id: 0}}, {Sequence: {id: A, type_id: 0}}]
      pair: [{Sequence: {id: A, type_id: 0}}, {Sequence: {id: B, type_id: 0}}]
      special_tokens: {"<bos>": {id: "<bos>", ids: [2000], tokens: ["<bos>"]}}
data:
  - {text: "The shop opens at nine.<|im_end|>"}
```

## Fix safety
Safe if no other BOS is written: there must be exactly one at the beginning. Train and serve with the same.

## References
- unslothai/unsloth#10312, huggingface/transformers#29250 (Gemma)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_example
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_EXAMPLE
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch
from truetune.render.tokenizer import Tokenizer
from truetune.settings.run_spec import Severity


class TrainedWithBos(NamedTuple):
    """A family whose texts all began with BOS when its base was trained."""

    name: str
    bos: str
    mark: str
    """Another control token, which tells the family: several have a BOS called `<s>`"""
    severity: Severity


FAMILIES = (
    TrainedWithBos("Gemma", "<bos>", "<start_of_turn>", "warning"),
    TrainedWithBos("Llama 3", "<|begin_of_text|>", "<|start_header_id|>", "info"),
    TrainedWithBos("Mistral", "<s>", "[AVAILABLE_TOOLS]", "info"),
    TrainedWithBos("DeepSeek", "<｜begin▁of▁sentence｜>", "<｜Assistant｜>", "info"),
    TrainedWithBos("Command", "<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "info"),
)
# Chosen, not measured: a few rows without BOS are parts of longer texts.
MIN_SHARE = 0.1
"""Share of the examples without BOS from which something is said"""


class RowsBeginWithoutBos(DataRule):
    code = "LEN009"
    fault = Fault.BOS_MISSING
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "warning"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.bos_family = _family_trained_with_bos(self.tokenizer)
        self.examples = self.without = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the examples, and those that begin with another token than the family's BOS."""
        if self.bos_family is None:
            return
        bos = self.tokenizer.backend.token_to_id(self.bos_family.bos)
        firsts = batch.offsets[:-1][batch.lengths > 0]
        is_without = batch.ids[firsts] != bos
        self.examples += len(firsts)
        self.without += int(is_without.sum())
        room = MAX_CASES - len(self.cases)
        examples = np.flatnonzero(batch.lengths > 0)[is_without]
        for example in examples[:room].tolist():
            begin = batch.examples[example].rendering.text[:30]
            self.cases.append(case_in_example(batch, example, 0, f"begins with {begin!r}"))

    def unmet(self) -> Unmet | None:
        """Unmet for tokenizers of other families, and without an example."""
        if self.bos_family is None:
            return Unmet(
                "it is about tokenizers of families whose base models were trained with BOS"
            )
        return None if self.examples else NO_EXAMPLE

    def measurement_if_clean(self) -> Measurement:
        """How many examples begin without BOS."""
        return make_count_measurement(
            "examples that begin without BOS", self.without, self.examples
        )

    def findings(self) -> Iterator[Finding]:
        family = self.bos_family
        if family is None or self.without < max(1, MIN_SHARE * self.examples):
            return
        if self.tokenizer.adds_bos:
            # What the tokenizer adds to plain text is no part of a chat: its template has to write it.
            adds = "adds it to plain text, not to chats"
            remedy = (
                "write {{ bos_token }} at the beginning of the chat template, and"
                f" {family.bos} at the beginning of plain texts that are tokenized with add_special_tokens=False"
            )
        else:
            adds = "does not add it"
            remedy = (
                "restore the post_processor of the published tokenizer.json and set add_bos_token: true, or begin"
                f" each text with {family.bos}"
            )
        yield self.finding(
            f"{self.without:,} of {self.examples:,} examples begin without {family.bos}, with which every training"
            f" text of {family.name} began",
            remedy,
            severity=family.severity,
            evidence=[f"this tokenizer {adds}"],
            cases=self.cases,
            count=self.without,
            total=self.examples,
        )


def _family_trained_with_bos(tokenizer: Tokenizer) -> TrainedWithBos | None:
    """The family whose BOS and mark are both control tokens of a tokenizer; None for others."""
    for family in FAMILIES:
        ids = [tokenizer.backend.token_to_id(token) for token in (family.bos, family.mark)]
        if all(id is not None and id in tokenizer.control for id in ids):
            return family
    return None
