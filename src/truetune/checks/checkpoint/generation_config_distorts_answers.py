"""generation_config.json makes right answers impossible.

## What it does
Compares the settings in generation_config.json with the ranges that `generation-settings-distort-answers` uses for
code: forbidden n-grams, repetition penalties, temperatures, a minimum length.

## Why it is bad
transformers, vLLM and SGLang use this file by default, for every request that does not set something else. With
`no_repeat_ngram_size: 4`, no key of a JSON object can occur twice, whatever the model has learned.

## Example
```yaml
llama: 2
generation_config: {no_repeat_ngram_size: 4}
```

## Use instead
```yaml
llama: 2
generation_config: {eos_token_id: 2}
```

## Fix safety
Removing the setting is safe for models whose answers have a fixed form. If answers loop without a penalty, the cause is
in training.

## References
- huggingface/transformers: `NoRepeatNGramLogitsProcessor`, `RepetitionPenaltyLogitsProcessor`
- vllm-project/vllm#12622 (vLLM takes generation_config.json as its default)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.hyperparameter_limits import (
    GENERATION,
    limit_breaches,
    parse_setting_number,
    settings_with_limits,
)
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NO_GENERATION_CONFIG
from truetune.checks.rule import CheckpointRule

FILE = "generation_config.json"


class GenerationConfigDistortsAnswers(CheckpointRule):
    code = "CKP034"
    fault = Fault.SAMPLING_SETTINGS_DISTORT_ANSWERS
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "warning"
    opens = False

    def unmet(self) -> Unmet | None:
        return None if self.subject.generation_config else NO_GENERATION_CONFIG

    def measurement_if_clean(self) -> str:
        """The settings with limits that generation_config.json names; or that it names none."""
        values = self.subject.generation_config
        named = [
            f"{name} {values[name]}"
            for name in settings_with_limits(GENERATION)
            if parse_setting_number(values.get(name)) is not None
        ]
        return ", ".join(named) or "it names no penalty, temperature or least length"

    def findings(self) -> Iterator[Finding]:
        values = self.subject.generation_config
        for breach in limit_breaches(values, GENERATION):
            name = breach.limit.setting
            yield self.finding(
                breach.text(breach.limit.says, values, name),
                breach.text(breach.limit.fix, values, name),
                severity=breach.limit.severity,
                evidence=[breach.limit.source],
                cases=[Case(f"{name}: {values[name]}", file=str(self.subject.folder / FILE))],
            )
