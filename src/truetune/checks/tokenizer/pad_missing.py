"""The tokenizer has no pad token.

## What it does
Looks for a pad token in the tokenizer's files. It is a warning, or an info if the trainer masks padding by position.

## Why it is bad
Trainers silently fall back to EOS, or ask for a pad token. The usual answer, `pad_token = eos_token`, masks every stop
token in collators that mask by id, and the model never learns to stop.

## Example
```yaml
files:
  tokenizer_config.json: {pad_token: null}
  special_tokens_map.json: {pad_token: null}
```

## Use instead
```yaml
files:
  tokenizer_config.json: {pad_token: "<|pad|>"}
```

## Fix safety
Safe if the vocabulary has a free token. A new token needs a resized embedding before training.

## References
- huggingface/transformers#22794, huggingface/trl#976, unslothai/unsloth#416
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DataRule
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact, SeverityForFact
from truetune.render.choose_pad_token import choose_pad_token


class PadMissing(DataRule):
    code = "TOK002"
    fault = Fault.PAD_TOKEN_MISSING_OR_DIFFERENT
    symptoms = ("never-stops",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    by_trainer = (
        SeverityByFact(
            "missing_pad",
            {
                "chosen": MOOT,
                "error": SeverityForFact(
                    "warning",
                    "{trainer} fails when it pads the first batch; setting pad = EOS is the usual workaround",
                ),
            },
        ),
        SeverityByFact(
            "pads_masked_by",
            {"position": SeverityForFact("info", "{trainer} masks pads by their position")},
        ),
    )

    def measurement_if_clean(self) -> str:
        """The pad token: that of the tokenizer, else that of the settings."""
        pad = self.tokenizer.special.get("pad")
        if pad is None:
            return f"the settings name {self.spec.training.special_tokens.get('pad_token')} as the pad token"
        return f"the pad token is {pad.token} ({pad.id})"

    def findings(self) -> Iterator[Finding]:
        # Settings name the pad token that is added before the training (Axolotl's special_tokens).
        if "pad" in self.tokenizer.special or self.spec.training.special_tokens.get("pad_token"):
            return
        better, reason = choose_pad_token(self.tokenizer, self.probes.stops)
        yield self.finding(
            "the tokenizer has no pad token; trainers fall back to EOS, which some collators then mask, so the"
            " model never learns to stop",
            f'set pad_token to "{better.token}" ({better.id}): {reason}' if better else reason,
        )
