"""The settings use the stop token as the pad token.

## What it does
Compares the pad token in the settings (`pad_token`, Axolotl's `special_tokens`) with the EOS in the settings, or with
the tokenizer's own if it is on this machine.

## Why it is bad
If the collator masks padding by token id, the stop token is masked too, and the model never learns to stop: an error.
TRL and Axolotl mask padding by position, so their runs are right, and it is info. But the pad token is saved with the
tokenizer: a later training that masks by id, or batched generation without an attention mask, loses the stop token.

## Example
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: chat_template}]
  sequence_len: 2048
  micro_batch_size: 2
  special_tokens: {eos_token: <|im_end|>, pad_token: <|im_end|>}
```

## Use instead
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: chat_template}]
  sequence_len: 2048
  micro_batch_size: 2
  special_tokens: {eos_token: <|im_end|>, pad_token: <|endoftext|>}
```

## Fix safety
Safe: the model never reads pad tokens. Take a token of the vocabulary that never ends a turn.

## References
- huggingface/transformers#23530, huggingface/trl#976, huggingface/open-r1#494
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_TOKENIZER
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.config.evidence.template_marks_before_questions import answer_end_and_eos
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.checks.severity_by_trainer import SeverityByFact, SeverityForFact


class PadSetToStopToken(ConfigRule):
    code = "CFG039"
    fault = Fault.STOP_TOKEN_LEFT_OUT_OF_LOSS
    symptoms = ("garbage-output", "never-stops")
    severity = "error"
    since = "0.1.0"
    by_trainer = (
        SeverityByFact(
            "pads_masked_by",
            {
                "position": SeverityForFact(
                    "info", "{trainer} masks padding by position: no label is lost here"
                ),
                None: SeverityForFact(
                    "warning",
                    "it is unknown how the collator masks padding: if by id, the model never learns to stop",
                ),
            },
        ),
    )

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Unmet where the settings set no pad token, or the end of answers is not known.
        """
        given = self.subject.spec.training.special_tokens
        if "pad_token" not in given:
            return Unmet("it is about a pad token in the settings, and none is set there")
        known = "eos_token" in given or answer_end_and_eos(self.subject)[0] is not None
        return None if known else NO_TOKENIZER

    def measurement_if_clean(self) -> str:
        """What was measured: the pad token that is set, and the tokens that end answers."""
        given, (end, eos) = (
            self.subject.spec.training.special_tokens,
            answer_end_and_eos(self.subject),
        )
        ends = dict.fromkeys(
            token for token in (given.get("eos_token", eos), end) if token is not None
        )
        return f"the pad token is set to {given['pad_token']}; answers end with {' or '.join(ends)}"

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        given = config.spec.training.special_tokens
        pad = given.get("pad_token")
        if pad is None:
            return
        end, eos = answer_end_and_eos(config)
        if pad in (given.get("eos_token", eos), end):
            yield self.finding(
                (
                    f"the pad token is {pad}, the token that ends an answer: a collator that masks padding by id"
                    " also masks every stop token"
                ),
                (
                    "set pad_token to a token that never ends a turn, such as <|endoftext|>, <pad> or a reserved"
                    " token of the vocabulary"
                ),
                cases=[
                    setting_case(
                        config,
                        pad,
                        "pad_token",
                        "special_tokens.pad_token",
                        "training.special_tokens",
                    )
                ],
            )
