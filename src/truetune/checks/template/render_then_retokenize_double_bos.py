"""Rows that were already rendered get a second BOS.

## What it does
Counts the plain text rows that begin with the BOS token if the tokenizer adds one too.

## Why it is bad
Each example begins with two BOS tokens in training and with one in serving, or the other way round. Models of some
families lose several points from that.

## Example
```yaml
files:
  tokenizer_config.json: {bos_token: "<|endoftext|>"}
  tokenizer.json:
    post_processor:
      type: TemplateProcessing
      single: [{SpecialToken: {id: "<|endoftext|>", type_id: 0}}, {Sequence: {id: A, type_id: 0}}]
      pair: [{Sequence: {id: A, type_id: 0}}, {Sequence: {id: B, type_id: 1}}]
      special_tokens: {"<|endoftext|>": {id: "<|endoftext|>", ids: [0], tokens: ["<|endoftext|>"]}}
data:
  - {text: "<|endoftext|><|im_start|>user\\nIs it open?<|im_end|>\\n<|im_start|>assistant\\nIt is open.<|im_end|>"}
```

## Use instead
```yaml
files:
  tokenizer_config.json: {bos_token: "<|endoftext|>"}
  tokenizer.json:
    post_processor:
      type: TemplateProcessing
      single: [{SpecialToken: {id: "<|endoftext|>", type_id: 0}}, {Sequence: {id: A, type_id: 0}}]
      pair: [{Sequence: {id: A, type_id: 0}}, {Sequence: {id: B, type_id: 1}}]
      special_tokens: {"<|endoftext|>": {id: "<|endoftext|>", ids: [0], tokens: ["<|endoftext|>"]}}
data:
  - {text: "<|im_start|>user\\nIs it open?<|im_end|>\\n<|im_start|>assistant\\nIt is open.<|im_end|>"}
```

## Fix safety
Safe: give the trainer the messages, or encode the text with `add_special_tokens=False`.

## References
- huggingface/trl#1400, huggingface/trl#3328, huggingface/trl#3856, OpenRLHF/OpenRLHF#393, vllm-project/vllm#16976
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_PLAIN_ROWS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact, SeverityForFact
from truetune.encoding.batch import Batch

UNKNOWN_BOS = (
    "TRL, Axolotl and transformers encode text like this; Unsloth and LLaMA-Factory add no"
    " second BOS"
)


class RenderThenRetokenizeDoubleBos(DataRule):
    code = "TPL008"
    fault = Fault.SPECIAL_TOKENS_DOUBLED_OR_MISPLACED
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    by_trainer = (
        SeverityByFact("doubles_bos", {False: MOOT, None: SeverityForFact("warning", UNKNOWN_BOS)}),
    )

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        bos = setup.tokenizer.special.get("bos")
        self.bos = bos.token if bos and setup.tokenizer.adds_bos else None
        self.rows = self.double = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the plain rows, and those whose text begins with the BOS that the tokenizer adds."""
        for row in batch.rows:
            if not row.is_chat:
                self.rows += 1
                if self.bos is not None and (row.text or row.prompt or "").startswith(self.bos):
                    self.double += 1
                    if len(self.cases) < MAX_CASES:
                        text = f"the tokens begin with {self.bos} {self.bos}"
                        self.cases.append(Case(text, row.origin, token=1))

    def unmet(self) -> Unmet | None:
        """Unmet where no row is plain text."""
        return None if self.rows else NO_PLAIN_ROWS

    def measurement_if_clean(self) -> Measurement | str:
        """The number of rows of text that begin with two BOS tokens; a text where the tokenizer
        adds no BOS.
        """
        if self.bos is None:
            return "the tokenizer adds no BOS to what it encodes"
        return make_count_measurement(
            "rows of text that begin with two BOS tokens", self.double, self.rows
        )

    def findings(self) -> Iterator[Finding]:
        if self.double:
            yield self.finding(
                f"{self.double:,} of {self.rows:,} rows of text begin with two BOS tokens",
                "give the trainer the messages instead of rendered text, or encode it with"
                " add_special_tokens=False",
                evidence=[
                    f"the text begins with {self.bos}, and the tokenizer adds another {self.bos}"
                ],
                cases=self.cases,
                count=self.double,
                total=self.rows,
            )
