"""The worst checkpoint is kept as the best, because greater_is_better is wrong for the metric.

## What it does
Compares `greater_is_better` with the direction of the metric, as its name says. If `greater_is_better` is not set, it
takes the value that transformers assumes: true, unless the name ends in "loss".

## Why it is bad
`load_best_model_at_end` and early stopping keep the worst checkpoint. The log looks normal; only the final model is
worse than the curves suggest.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  eval_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: perplexity
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  eval_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: perplexity
  greater_is_better: false
```

## Fix safety
The checkpoint that is kept changes. The fix is right if the metric is what its name says.

## References
- huggingface/transformers#31142, huggingface/transformers#40221, babylm/evaluation-pipeline-2023#9
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_value_unknown,
    setting_case,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.metric_direction_words import LOWER_IS_BETTER, words_with_known_direction
from truetune.checks.rule import ConfigRule


class BestModelDirectionInverted(ConfigRule):
    code = "CFG008"
    fault = Fault.WRONG_CHECKPOINT_CHOSEN
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    about = ("training.metric_for_best_model", "training.load_best_model_at_end")
    reads = ("training.greater_is_better",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where it is not known whether a higher value of the metric is better.
        """
        metric = self.subject.spec.training.metric_for_best_model or "loss"
        if (lacking := super().unmet()) is None and not words_with_known_direction(metric):
            return Unmet(
                f"it is not known whether a higher {metric} is better",
                "set greater_is_better yourself",
            )
        return lacking

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        metric = training.metric_for_best_model
        if is_value_unknown(config, "metric_for_best_model", "greater_is_better"):
            return
        if metric is None and not training.load_best_model_at_end:
            return
        name = metric or "loss"
        words = words_with_known_direction(name)
        if not words:
            return
        is_lower_better = words[-1] in LOWER_IS_BETTER
        greater = training.greater_is_better
        cases = [setting_case(config, name, "training.metric_for_best_model")]
        evidence = []
        if greater is None:
            # The rule of transformers where the setting is left out.
            greater = not name.endswith("loss")
            evidence.append(
                "greater_is_better is not set: transformers assumes true, since the name does not end in loss"
            )
        else:
            cases.append(setting_case(config, bool(greater), "training.greater_is_better"))
        if greater is is_lower_better:
            used = training.load_best_model_at_end or training.save_strategy == "best"
            yield self.finding(
                (
                    f"the checkpoint with the {'highest' if is_lower_better else 'lowest'} {name} is kept as the"
                    f" best, but {'lower' if is_lower_better else 'higher'} is better"
                ),
                f"set greater_is_better: {str(not is_lower_better).lower()}",
                severity="error" if used else "warning",
                evidence=evidence,
                cases=cases,
            )
