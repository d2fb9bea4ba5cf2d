"""The tokenizer pads on the left.

## What it does
Reads `padding_side`, and from config.json whether the model adds an absolute position to each token. It is a warning
for such models, otherwise an info.

## Why it is bad
Left padding is for batched generation. In training it moves a row to other positions in each batch. Models that count
absolute positions from the left edge (GPT-2, GPT-Neo) then give different logits for the same row. Rotary models do
not, nor does OPT, which counts from the first token that is not padding.

## Example
```yaml
files:
  tokenizer_config.json: {padding_side: left}
  config.json: {model_type: gpt2}
```

## Use instead
```yaml
files:
  tokenizer_config.json: {padding_side: right}
```

## Fix safety
Set it to right for training, and to left for batched generation.

## References
- huggingface/transformers#24839, huggingface/transformers#34842
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DataRule
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact

# By the modelling code of transformers: position_ids count from the left edge where none are given.
# OPT and BLOOM are not among them: they take positions from the attention mask.
ABSOLUTE_POSITIONS = frozenset(("gpt2", "gpt_neo", "gpt_bigcode", "openai-gpt", "xglm", "ctrl"))
"""Model types that add a position to each embedding, and count pads as positions."""


class TokenizerPadsOnTheLeft(DataRule):
    code = "TOK003"
    fault = Fault.PADDING_CHANGES_RESULTS
    symptoms = ("good-here-bad-there",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    by_trainer = (SeverityByFact("pads_on", {"right": MOOT}),)

    def measurement_if_clean(self) -> str:
        """The side on which the tokenizer pads."""
        return f"the padding side is {self.tokenizer.padding_side}"

    def findings(self) -> Iterator[Finding]:
        if self.tokenizer.padding_side != "left":
            return
        kind = self.tokenizer.model_config.get("model_type")
        hurt = kind in ABSOLUTE_POSITIONS
        yield self.finding(
            (
                f"the tokenizer pads on the left, but {kind} has absolute positions: padding changes the logits of a"
                " row"
                if hurt
                else "the tokenizer pads on the left, which is for generation"
            ),
            'set tokenizer.padding_side = "right" for training, and "left" for batched generation',
            severity="warning" if hurt else "info",
        )
