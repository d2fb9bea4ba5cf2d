"""An object that configures training or generation is created but never passed on.

## What it does
Tracks, in a file that trains or generates, each `LoraConfig` (and the other configs of PEFT), each collator, callback,
`TrainingArguments` or `SFTConfig`, `GenerationConfig`, `StoppingCriteriaList` and vLLM's `SamplingParams`. It fires if
nothing uses the object and the call that would take it gets no other one. It is an error for a config of PEFT, else a
warning. It does not fire if the same is set in another way (`get_peft_model`, an adapter that is loaded, another object
of the kind), or if a name may be read elsewhere: an attribute of a class, a string, another file that runs with it.

## Why it is bad
There is no error, and the settings have no effect. With an unused `LoraConfig` all weights are trained: a 7B model
needs 60 GB or more instead of 18, at a learning rate that is meant for adapters. An unused collator may be the one that
masks the prompts.

## Example
```python
from peft import LoraConfig
from trl import SFTTrainer

peft_config = LoraConfig(r=16, target_modules="all-linear")
trainer = SFTTrainer(model="model", train_dataset=rows)
trainer.train()
```

## Use instead
```python
from peft import LoraConfig
from trl import SFTTrainer

peft_config = LoraConfig(r=16, target_modules="all-linear")
trainer = SFTTrainer(model="model", train_dataset=rows, peft_config=peft_config)
trainer.train()
```

## Fix safety
There is no automatic fix: the object may be left over from an experiment. Then remove it. If you pass it on, the run
changes: its memory, its loss or its answers.

## References
- huggingface/trl documentation, "PEFT integration": `SFTTrainer(peft_config=...)`
- huggingface/peft documentation, `get_peft_model`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.config_objects_given_to_nothing import (
    KINDS,
    SettingsLeftBehind,
    settings_given_to_nothing,
)

PATTERNS = tuple(pattern for kind in KINDS for pattern in kind.made_by)


class SettingsNeverPassed(SourceRule):
    code = "SRC317"
    fault = Fault.SETTINGS_NOT_USED
    symptoms = ("nothing-is-learned", "out-of-memory", "odd-metrics", "garbage-output")
    severity = "warning"
    looks_at = places_of_calls("configs, collators and callbacks that are built", *PATTERNS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for left in settings_given_to_nothing(module):
            node = left.taker.node
            place = module.describe_cell_and_line_of_node(node) or f"line {module.place(node)[0]}"
            yield self.finding(
                f"{_class_name_with_article(left.name)} is created but never passed on: {left.effect}",
                _remedy(left, place),
                cases=[case_of_node(module, left.made.node)],
                severity="error" if left.kind.is_adapter else None,
            )


def _class_name_with_article(name: str) -> str:
    """A class name with its article: `a LoraConfig`, `an SFTConfig`."""
    is_vowel = name[:1] in "AEIO" or name[:3] in ("SFT", "RLO", "XPO")
    return f"{'an' if is_vowel else 'a'} {name}"


def _remedy(left: SettingsLeftBehind, place: str) -> str:
    """The remedy: the edit that passes the object on."""
    # Callbacks are taken as a list.
    value = f"[{left.variable}]" if left.kind.argument == "callbacks" else left.variable
    given = f"{left.kind.argument}={value}"
    if not left.kind.is_adapter:
        return f"pass it to {left.taker_name} ({place}): {given}; or remove it"
    wrap = f"model = get_peft_model(model, {left.variable})"
    if left.takes_it:
        return f"pass it to {left.taker_name} ({place}): {given}; or remove it if you want to train all weights"
    return f"add {wrap} before {place}; or remove the config if you want to train all weights"
