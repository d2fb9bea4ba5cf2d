"""The checkpoint is saved with the key-value cache turned off.

## What it does
Reads `use_cache` in config.json and generation_config.json. It is info if only config.json turns it off and a
generation_config.json is beside it, which `generate` uses.

## Why it is bad
`use_cache=False` is set for training with gradient checkpointing, and then saved. Generation computes all earlier
tokens again for each new one, so it gets slower with each token.

## Example
```yaml
llama: 2
config: {use_cache: false}
```

## Use instead
```yaml
llama: 2
config: {use_cache: true}
```

## Fix safety
Changing the setting is safe: results stay the same.

## References
- turbo-llm/turbo-alignment#47, unslothai/unsloth-zoo#715, huggingface/transformers#28056
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from truetune.checks.checkpoint.read_text_part_of_model_config import first_set_text_model_setting
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule


class UseCacheSavedOff(CheckpointRule):
    code = "CKP022"
    fault = Fault.GENERATION_OPTIONS_SLOW
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    changes_answers = False
    opens = False

    def unmet(self) -> Unmet | None:
        if self.subject.config or self.subject.generation_config:
            return None
        return Unmet("there is no config.json and no generation_config.json")

    def measurement_if_clean(self) -> str:
        """The value of use_cache in config.json and in generation_config.json."""
        values = (
            f"{_describe_value(first_set_text_model_setting(settings, 'use_cache'))} in {name}"
            for name, settings in self._settings_by_file().items()
            if settings
        )
        return f"use_cache is {' and '.join(values)}"

    def _settings_by_file(self) -> dict[str, Mapping[str, Any]]:
        """The settings of config.json and of generation_config.json, by the name of the file."""
        return {
            "config.json": self.subject.config,
            "generation_config.json": self.subject.generation_config,
        }

    def findings(self) -> Iterator[Finding]:
        off = [
            name
            for name, settings in self._settings_by_file().items()
            if first_set_text_model_setting(settings, "use_cache") is False
        ]
        if not off:
            return
        files = " and ".join(off)
        cases = [Case("use_cache: false", file=name) for name in off]
        # generate() goes by generation_config.json where there is one; then config.json does no harm.
        if off == ["config.json"] and self.subject.has_file("generation_config.json"):
            yield self.finding(
                f"use_cache is false in {files}, which some engines read",
                f'set "use_cache": true in {files}',
                severity="info",
                evidence=["generate() uses generation_config.json, where it is on"],
                cases=cases,
            )
            return
        yield self.finding(
            f"use_cache is false in {files}: generation computes the whole text again for each"
            " token",
            f'set "use_cache": true in {files}; model.generate(..., use_cache=True) turns it on for one'
            " call",
            evidence=[
                "training with gradient checkpointing turns it off, and the setting is then saved"
            ],
            cases=cases,
        )


def _describe_value(value: object) -> str:
    """A value as JSON spells it, or that there is none."""
    if value is None:
        return "not set"
    return "true" if value is True else str(value)
