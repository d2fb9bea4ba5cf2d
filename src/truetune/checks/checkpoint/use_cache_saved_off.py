"""The checkpoint is saved with the key-value cache switched off.

## What it does
Reads `use_cache` in config.json and generation_config.json. It is a note where only config.json switches it off and a
generation_config.json stands beside it, which `generate` goes by.

## Why it is bad
`use_cache=False` is set for training with gradient checkpointing, and saved along. Generation then computes all
earlier tokens again for each new one: it gets slower with each token.

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
Safe: the field changes no value.

## References
- turbo-llm/turbo-alignment#47, unslothai/unsloth-zoo#715, huggingface/transformers#28056
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.checkpoint.architecture import setting
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule


class UseCacheSavedOff(CheckpointRule):
    code = "CKP022"
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    changes_answers = False
    opens = False

    def unmet(self) -> Unmet | None:
        there = self.subject.config or self.subject.generation_config
        return None if there else Unmet("there is no config.json and no generation_config.json")

    def figure(self) -> str:
        files = {
            "config.json": self.subject.config,
            "generation_config.json": self.subject.generation_config,
        }
        told = (
            f"{setting(values, 'use_cache')} in {name}" for name, values in files.items() if values
        )
        return f"use_cache is {' and '.join(told)}".replace("None", "not set").replace(
            "True", "true"
        )

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        files = {"config.json": found.config, "generation_config.json": found.generation_config}
        off = [name for name, values in files.items() if setting(values, "use_cache") is False]
        if off:
            harmless = off == ["config.json"] and found.has("generation_config.json")
            yield self.finding(
                f"use_cache is false in {' and '.join(off)}"
                + ("" if harmless else ": generation computes the whole text again for each token"),
                f'write "use_cache": true into {" and ".join(off)}'
                + ("" if harmless else "; model.generate(..., use_cache=True) does the same once"),
                severity="info" if harmless else "warning",
                evidence=(
                    ["generate() goes by generation_config.json, where it is on"]
                    if harmless
                    else [
                        "training with gradient checkpointing switches it off, and it is saved along"
                    ]
                ),
                cases=[Case("use_cache: false", file=name) for name in off],
            )
