"""Some entries of target_modules have no tensor in the adapter.

## What it does
Compares each entry of `target_modules` (or each alternative in a pattern) with the modules that have tensors in the
adapter file. It is a warning for a list, and info for an alternative in a pattern, which may be meant for other models.
Keys of `alpha_pattern` and `rank_pattern` that are names are compared as well.

## Why it is bad
peft only raises an error if no entry matches. A typo, a missing comma, or a name from another architecture is ignored
without a message, and the adapter is weaker than planned.

## Example
```yaml
lora: [q_proj]
adapter_config: {target_modules: [q_proj, v_prjo]}
```

## Use instead
```yaml
lora: [q_proj, v_proj]
```

## Fix safety
Correct the names and train again; missing modules can't be added to the saved adapter.

## References
- vvvvvjdy/D-OPSD#5, bghira/SimpleTuner#766, unslothai/unsloth-zoo#1150, hiyouga/LlamaFactory#10790
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from truetune.checkpoint.adapter_tensor_names import (
    find_replacement_tensors,
    group_low_rank_tensors,
    list_modules_and_parents,
    matches_target,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NOT_LORA
from truetune.checks.rule import CheckpointRule

PATTERN_WORDS = re.compile(r"\(((?:\w{2,60}\|)+\w{2,60})\)")
"""Alternatives of a pattern: (q_proj|v_proj)"""
# Characters of a pattern that are read: real ones have some hundreds, and a hostile one must not cost time.
MAX_PATTERN_CHARS = 10_000
SHOWN_NAMES = 5
PATTERNS_OF_MODULES = ("alpha_pattern", "rank_pattern")
"""Settings of LoraConfig whose keys are names of modules"""
PLAIN_NAME = re.compile(r"[\w.]{1,200}")
"""A key that is a name; patterns are not tried, since one could run for ever"""


class LoraTargetsHalfMatched(CheckpointRule):
    code = "CKP007"
    fault = Fault.LORA_TARGETS_DO_NOT_EXIST
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    kind = "adapter"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.adapter_config.get("peft_type", "LORA") != "LORA":
            return NOT_LORA
        if not group_low_rank_tensors(self.subject.tensors):
            return Unmet("no tensor of it is of a low-rank pair")
        return (
            None
            if self._names_in_target_modules()
            else Unmet("target_modules names no module by itself")
        )

    def measurement_if_clean(self) -> str:
        """How many of the target_modules have tensors, and in how many modules."""
        modules = len(group_low_rank_tensors(self.subject.tensors))
        count = len(self._names_in_target_modules())
        return f"{count:,} of {count:,} target_modules have tensors, in {modules:,} modules"

    def _names_in_target_modules(self) -> list[str]:
        """The names in target_modules; of a pattern, its alternatives."""
        targets = self.subject.adapter_config.get("target_modules")
        if isinstance(targets, str):
            groups = PATTERN_WORDS.findall(targets[:MAX_PATTERN_CHARS])
            return [word for group in groups for word in group.split("|")]
        if not isinstance(targets, list):
            return []
        return [target for target in targets if isinstance(target, str)]

    def findings(self) -> Iterator[Finding]:
        checkpoint = self.subject
        adapted = group_low_rank_tensors(checkpoint.tensors)
        is_lora = checkpoint.adapter_config.get("peft_type", "LORA") == "LORA"
        if checkpoint.kind != "adapter" or not adapted or not is_lora:
            return
        yield from self._finding_on_patterns_without_module(adapted)
        lost = self._targets_without_tensor(adapted)
        if not lost:
            return
        names = self._names_in_target_modules()
        # An alternative of a pattern may be meant for other models; a name in a list is meant for this one.
        is_pattern = isinstance(checkpoint.adapter_config.get("target_modules"), str)
        counts = Counter(module.rpartition(".")[2] for module in adapted)
        by_module = ", ".join(f"{name} ({count:,})" for name, count in sorted(counts.items()))
        hints = self._lost_names_with_similar_module(lost, counts)
        yield self.finding(
            f"{len(lost):,} of {len(names):,} target_modules have no tensor:"
            f" {', '.join(lost[:SHOWN_NAMES])}",
            "correct these names in target_modules to modules that the model has, and train again",
            severity="info" if is_pattern else "warning",
            evidence=[f"adapted: {by_module}"],
            cases=[Case(hint, file="adapter_config.json") for hint in hints],
            count=len(lost),
            total=len(names),
        )

    def _finding_on_patterns_without_module(self, adapted: Collection[str]) -> Iterator[Finding]:
        """The finding on keys of alpha_pattern and rank_pattern that no adapted module fits."""
        config = self.subject.adapter_config
        lost = [
            f"{key} in {setting}"
            for setting in PATTERNS_OF_MODULES
            for key in config.get(setting) or {}
            if not any(_fits_pattern(module, str(key)) for module in adapted)
        ]
        if not lost:
            return
        yield self.finding(
            f"{lost[0]} of adapter_config.json fits no module of the adapter: these have the alpha and rank of the"
            " other modules",
            "write the names of modules as peft has them (`q_proj`, or `layers.0.self_attn.q_proj`), and train again",
            cases=[Case(text, file="adapter_config.json") for text in lost],
            count=len(lost),
        )

    def _targets_without_tensor(self, adapted: Collection[str]) -> list[str]:
        """The names in target_modules that no saved module ends with; of a pattern, that are in no module's path."""
        targets = self.subject.adapter_config.get("target_modules")
        if isinstance(targets, str):
            parts = {part for module in adapted for part in module.split(".")}
            return [
                name
                for name in self._names_in_target_modules()
                if name not in parts and name != targets
            ]
        saved_modules = (
            *adapted,
            *list_modules_and_parents(find_replacement_tensors(self.subject.tensors)),
        )
        return [
            name
            for name in self._names_in_target_modules()
            if not any(matches_target(module, name) for module in saved_modules)
        ]

    def _lost_names_with_similar_module(
        self, lost: Iterable[str], counts: Mapping[str, int]
    ) -> Iterator[str]:
        """The lost names, each with the module of the base, or of the adapter, that it is like."""
        known: Iterable[str] = counts
        if self.subject.base is not None:
            known = {
                module.rpartition(".")[2]
                for module in list_modules_and_parents(self.subject.base.tensors)
            }
        names = sorted(known)
        for target in lost:
            near = difflib.get_close_matches(target, names, n=1)
            yield f"{target} (did you mean {near[0]}?)" if near else target


def _fits_pattern(module: str, key: str) -> bool:
    """May a key of adapter_config.json mean a module? Patterns are taken to fit."""
    if PLAIN_NAME.fullmatch(key) is None:
        return True
    return module == key or module.endswith(f".{key}")
