"""The output shows that hardly more than a norm or two of the model is trained.

## What it does
Reads how many parameters are trained, and of how many, as PEFT, Unsloth and scripts print it (`trainable params: 3,584
|| all params: 7,615,616,512`). It fires for a language model if the trainable parameters would not fill two vectors of
the model's width: no weight matrix and no adapter is that small. Prompt tuning is not reported if the script beside the
log or the saved adapter shows it: a prompt of one token is one vector.

## Why it is bad
The weights that should be trained are frozen: a filter on parameter names matches no layer, or the adapter was frozen.
The loss stays flat although the learning rate looks right, and no learning rate helps.

## Example
```yaml
output: |
  trainable params: 3,584 || all params: 7,615,616,512 || trainable%: 0.0000
  {'loss': 2.2236, 'grad_norm': 0.118, 'learning_rate': 1e-05, 'epoch': 0.12}
  {'loss': 2.2845, 'grad_norm': 0.116, 'learning_rate': 2e-05, 'epoch': 0.24}
```

## Use instead
```yaml
output: |
  trainable params: 932,228,608 || all params: 7,615,616,512 || trainable%: 12.2410
  {'loss': 2.2236, 'grad_norm': 2.118, 'learning_rate': 1e-05, 'epoch': 0.12}
  {'loss': 1.8845, 'grad_norm': 1.816, 'learning_rate': 2e-05, 'epoch': 0.24}
```

## Fix safety
Printing the names changes nothing. Unfreezing layers needs memory for their gradients and optimizer states. A run that
trains only the embedding of one new token may have as few parameters.

## References
- `print_trainable_parameters` of peft; torch.nn.Module.named_parameters
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.evidence.fall_of_loss_and_possible_causes import CLASS_METRIC
from truetune.checks.rule import OutputRule
from truetune.logs.facts_in_files_beside_log import FROZEN_IN_CODE, SOFT_PROMPT
from truetune.logs.run_log import RunLog

MIN_PARAMETERS = 50_000_000
"""Of a model below which it is a toy"""
# A model has about 12 parameters and more for each layer and square of its width; those of a billion parameters and
# more have 16 layers at least. So its width is at most the root of a 190th: 6,300 for Qwen2.5-7B, which has 3,584.
PARAMETERS_BY_SQUARED_WIDTH = 190
VECTORS = 2
"""Chosen: a norm has one vector, a matrix of LoRA two at the least"""
KINDS_OF_PROMPTS = frozenset(
    ("PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "MULTITASK_PROMPT_TUNING", "CPT")
)
"""PEFT's names of adapters that are vectors before the text"""


class AlmostNothingIsTrained(OutputRule):
    code = "LOG129"
    fault = Fault.NO_WEIGHT_TRAINED
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"

    def unmet(self) -> Unmet | None:
        """Also unmet where the output does not say how many parameters are trained."""
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        return (
            None
            if self._trained_and_all_parameters() is not None
            else Unmet(
                "the output does not say how many parameters are trained",
                "print them: model.print_trainable_parameters()",
            )
        )

    def measurement_if_clean(self) -> str:
        """How many of all parameters are trained."""
        trained, parameters = self._trained_and_all_parameters() or (0, 1)
        return f"{trained:,} of {parameters:,} parameters are trained"

    def findings(self) -> Iterator[Finding]:
        log, counts = self.subject, self._trained_and_all_parameters()
        if counts is None or not log.is_loss_of_token_prediction:
            return
        trained, parameters = counts
        # The head of a classifier is a vector for each class.
        if any(map(CLASS_METRIC.fullmatch, log.curves)) or parameters < MIN_PARAMETERS:
            return
        most = VECTORS * math.sqrt(parameters / PARAMETERS_BY_SQUARED_WIDTH)
        output = log.output
        if trained > most or (output is not None and output.settings.sharded):
            return
        if _is_prompt_tuning(log):
            return
        place = next(log.files_beside.settings_named(FROZEN_IN_CODE), None)
        where = f"{place.place} selects them: " if place is not None else ""
        yield self.finding(
            f"only {trained:,} of {parameters:,} parameters are trained ({trained / parameters:.5%}): that is a norm or"
            " two, and no whole layer, so the model can't learn",
            f"{where}print the trainable names with [n for n, p in model.named_parameters() if p.requires_grad], and"
            " correct what selects them: layer names of another model (layers count from 0 to"
            " config.num_hidden_layers - 1), a prefix that no name has, or an adapter that was frozen; another learning"
            " rate does not help",
        )

    def _trained_and_all_parameters(self) -> tuple[int, int] | None:
        """Numbers of trained parameters and of all, as the output prints them; None where it prints
        none, or none is trained.
        """
        output = self.subject.output
        printed = output.settings if output is not None else None
        if printed is None or not printed.trained or not printed.parameters:
            return None
        return printed.trained, printed.parameters


def _is_prompt_tuning(log: RunLog) -> bool:
    """Are the vectors of a prompt trained on purpose, by the script beside the log or by the saved
    adapter?
    """
    is_made = any(log.files_beside.settings_named(SOFT_PROMPT))
    return is_made or log.facts.get("adapter") in KINDS_OF_PROMPTS
