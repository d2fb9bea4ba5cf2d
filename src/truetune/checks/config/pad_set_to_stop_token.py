"""The settings make the pad token the one that ends an answer.

## What it does
Compares the pad token that the settings give the tokenizer (`pad_token`, Axolotl's `special_tokens`) with the EOS that
they give it, else with the tokenizer's own, where that is on this machine.

## Why it is bad
TRL and Axolotl mask pads by position, so their run is right: a note. Where the collator masks by id it is an error: no
stop token is learned. The tokenizer is saved with it, though: whoever trains on
from there with a collator that masks by id, or generates in batches without an attention mask, loses the stop token.

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
Safe: a pad token is never read by the model. Take one that is in the vocabulary and ends nothing.

## References
- huggingface/transformers#23530, huggingface/trl#976, huggingface/open-r1#494
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_TOKENIZER
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.config.evidence.template_marks_before_questions import answer_end_and_eos
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.checks.severity_by_trainer import SeverityByFact, SeverityForFact


class PadSetToStopToken(ConfigRule):
    code = "CFG039"
    symptoms = ("garbage-output", "never-stops")
    severity = "error"
    since = "0.1.0"
    by_trainer = (
        SeverityByFact(
            "pads_masked_by",
            {
                "position": SeverityForFact(
                    "info", "{trainer} masks pads by their position: no label is lost here"
                ),
                None: SeverityForFact(
                    "warning",
                    "it is not known how the collator masks pads: by id, no stop token is learned",
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
                f"the pad token is set to {pad}, which ends an answer",
                "take a token that ends nothing",
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
