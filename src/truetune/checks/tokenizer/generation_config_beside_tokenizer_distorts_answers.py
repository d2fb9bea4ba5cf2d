"""generation_config.json next to the tokenizer has settings that distort every answer.

## What it does
Compares the penalties, temperature and minimum lengths in generation_config.json, in the folder of the tokenizer, with
the ranges of published models (the same table as for settings in scripts).

## Why it is bad
`generate`, vLLM and SGLang use the file's values for every request that does not set its own. A penalty of 1.8 or a
minimum length of 256 spoils answers that the model has learned well, and the training looks guilty.

## Example
```yaml
files:
  generation_config.json: {eos_token_id: 3, repetition_penalty: 1.8}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
files:
  generation_config.json: {eos_token_id: 3, repetition_penalty: 1.05}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Safe: requests can still set each of them.

## References
- CTRL (arXiv:1909.05858); transformers' logits processors
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
from truetune.checks.rule import DataRule
from truetune.checks.tokenizer.evidence.token_ids_named_by_model_configs import GENERATION_FILE


class GenerationConfigBesideTokenizerDistortsAnswers(DataRule):
    code = "TOK012"
    fault = Fault.SAMPLING_SETTINGS_DISTORT_ANSWERS
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "warning"
    moot_where = ("generation-config-distorts-answers",)
    judges_saved_file = True
    judges_without_rows = True

    def unmet(self) -> Unmet | None:
        """Unmet without generation_config.json."""
        return None if self.tokenizer.generation_config else NO_GENERATION_CONFIG

    def measurement_if_clean(self) -> str:
        """The settings with limits that the file names; or that it names none."""
        values = self.tokenizer.generation_config or {}
        named = [
            f"{name} {values[name]}"
            for name in settings_with_limits(GENERATION)
            if parse_setting_number(values.get(name)) is not None
        ]
        return ", ".join(named) or "it names no penalty, temperature or least length"

    def findings(self) -> Iterator[Finding]:
        values = self.tokenizer.generation_config or {}
        for breach in limit_breaches(values, GENERATION):
            name = breach.limit.setting
            yield self.finding(
                breach.text(breach.limit.says, values, name),
                breach.text(breach.limit.fix, values, name),
                severity=breach.limit.severity,
                evidence=[breach.limit.source],
                cases=[Case(f"{name}: {values[name]}", file=GENERATION_FILE)],
            )
