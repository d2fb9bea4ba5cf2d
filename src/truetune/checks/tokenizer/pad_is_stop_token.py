"""The pad token is also a token that ends turns.

## What it does
Compares the pad token with every token that ends a turn: the tokenizer's EOS, those in generation_config.json and
config.json, and the one that the chat template writes. It counts the supervised tokens that are the pad token. It is an
error if the trainer masks labels by the pad id, an info if it masks by position (TRL, Axolotl, LLaMA-Factory), and a
warning if the trainer is not known (`--trainer`). It is also an info if no supervised token is affected and only
generation_config.json or config.json names it (as Qwen's do).

## Why it is bad
Collators that mask by id (such as transformers' `DataCollatorForLanguageModeling`) set each label that equals the pad
id to -100. The stop token is then never learned: answers are good but never end. The loss looks like that of a healthy
run.

## Example
```yaml
files:
  tokenizer_config.json: {pad_token: "<|im_end|>"}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
files:
  tokenizer_config.json: {pad_token: "<|pad|>"}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Safe: the model never reads a pad token. One that is in the vocabulary needs no resized embedding.

## References
- huggingface/transformers#23530, huggingface/transformers#22794, huggingface/trl#976, huggingface/open-r1#494
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_data_rules_cannot_judge import NO_STOPS
from truetune.checks.rule import DataRule
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact, SeverityForFact
from truetune.encoding.batch import Batch
from truetune.render.choose_pad_token import choose_pad_token
from truetune.render.tokenizer import StopToken
from truetune.settings.run_spec import Severity


class PadIsStopToken(DataRule):
    code = "TOK001"
    fault = Fault.STOP_TOKEN_LEFT_OUT_OF_LOSS
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_without_rows = True
    by_trainer = (
        SeverityByFact("clashing_pad", {"replaced": MOOT}),
        SeverityByFact(
            "pads_masked_by",
            {
                "position": SeverityForFact(
                    "info", "{trainer} masks pads by their position: no label is lost here"
                ),
                "id": SeverityForFact("error", "{trainer} masks every label that is the pad token"),
                None: SeverityForFact(
                    "warning",
                    "the trainer is not known: if it masks padding by position (TRL, Axolotl, LLaMA-Factory), no"
                    " label is lost; by id (transformers' language-modelling collator), all of these are; give"
                    " it with --trainer",
                ),
            },
        ),
    )
    supervised = masked = 0

    def add_batch(self, batch: Batch) -> None:
        """Count the supervised tokens, and those that are the pad token."""
        pad = self.tokenizer.special.get("pad")
        if pad is not None:
            self.supervised += int(batch.supervised.sum())
            self.masked += int((batch.supervised & (batch.ids == pad.id)).sum())

    def unmet(self) -> Unmet | None:
        """Unmet where the tokenizer has no pad token, or no stop token is known."""
        if "pad" not in self.tokenizer.special:
            return Unmet("the tokenizer has no pad token", "set pad_token in tokenizer_config.json")
        return None if self.probes.stops else NO_STOPS

    def measurement_if_clean(self) -> str:
        """The pad token and the stop tokens, with their ids."""
        pad = self.tokenizer.special["pad"]
        stops = ", ".join(f"{stop.token} ({stop.id})" for stop in self.probes.stops)
        return f"the pad token is {pad.token} ({pad.id}); turns end with {stops}"

    def findings(self) -> Iterator[Finding]:
        pad = self.tokenizer.special.get("pad")
        clash = next(
            (stop for stop in self.probes.stops if pad is not None and stop.id == pad.id), None
        )
        if clash is None:
            return
        better, reason = choose_pad_token(self.tokenizer, self.probes.stops)
        yield self.finding(
            f"the pad token {clash.token} ({clash.id}) is also a stop token: if padding is masked by its id, the"
            " model never learns to stop",
            f'set pad_token to "{better.token}" ({better.id}): {reason}' if better else reason,
            severity=self._severity_of_clash(clash),
            evidence=[
                f"{clash.token} ends turns by: {', '.join(clash.origins)}",
                *self._evidence_of_lost_labels(),
            ],
        )

    def _severity_of_clash(self, clash: StopToken) -> Severity:
        """An error where a trainer that masks by id loses labels by it; by_trainer says what others make of it."""
        if self.masked:
            return "error"
        # Of the tokenizer or the template it ends the answers of some row; of generation_config
        # alone it may end none.
        return "warning" if {"tokenizer", "template"} & set(clash.origins) else "info"

    def _evidence_of_lost_labels(self) -> Iterator[str]:
        """Evidence: how many supervised tokens a mask by id takes."""
        if self.supervised:
            yield (
                f"{self.masked:,} of {self.supervised:,} supervised tokens lose their label if padding is masked by"
                " id"
            )
