"""Some entries of target_modules have no tensor in the adapter.

## What it does
Compares each entry of `target_modules` (or each word of a pattern's alternatives) with the modules that have tensors
in the adapter file. An alternative of a pattern is a note: it may be meant for other models.

## Why it is bad
peft stops only where no entry fits. A typo, a missing comma, or a name of another architecture is passed over in
silence, and the adapter is weaker than planned.

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
Correct the names and train again; the saved adapter can't be completed.

## References
- vvvvvjdy/D-OPSD#5, bghira/SimpleTuner#766, unslothai/unsloth-zoo#1150, hiyouga/LlamaFactory#10790
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from truetune.checkpoint.adapter_tensor_names import (
    find_replaced_tensors,
    group_low_rank_tensors,
    list_modules,
    matches_target,
)
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.checks.unmet_reasons import NOT_LORA

WORDS = re.compile(r"\(((?:\w{2,60}\|)+\w{2,60})\)")
"""Alternatives of a pattern: (q_proj|v_proj)"""
LONGEST = 10_000


class LoraTargetsHalfMatched(CheckpointRule):
    code = "CKP007"
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    kind = "adapter"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        if self.subject.adapter_config.get("peft_type", "LORA") != "LORA":
            return NOT_LORA
        if not group_low_rank_tensors(self.subject.tensors):
            return Unmet("no tensor of it is of a low-rank pair")
        return None if self._words() else Unmet("target_modules names no module by itself")

    def figure(self) -> str:
        count, modules = len(self._words()), len(group_low_rank_tensors(self.subject.tensors))
        return f"{count:,} of {count:,} target_modules have tensors, in {modules:,} modules"

    def _words(self) -> list[str]:
        """The names in target_modules; of a pattern, its alternatives."""
        targets = self.subject.adapter_config.get("target_modules")
        if isinstance(targets, str):
            return [word for group in WORDS.findall(targets[:LONGEST]) for word in group.split("|")]
        return (
            [target for target in targets if isinstance(target, str)]
            if isinstance(targets, list)
            else []
        )

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        adapted = group_low_rank_tensors(found.tensors)
        is_lora = found.adapter_config.get("peft_type", "LORA") == "LORA"
        if found.kind != "adapter" or not adapted or not is_lora:
            return
        lost = self._without_tensor(adapted)
        if not lost:
            return
        words = self._words()
        is_pattern = isinstance(found.adapter_config.get("target_modules"), str)
        counts = Counter(module.rpartition(".")[2] for module in adapted)
        by_module = ", ".join(f"{name} ({count:,})" for name, count in sorted(counts.items()))
        hints = self._hints(lost, counts)
        yield self.finding(
            f"{len(lost):,} of {len(words):,} target_modules have no tensor: {', '.join(lost[:5])}",
            "name modules that the model has, and train again",
            severity="info" if is_pattern else "warning",
            evidence=[f"adapted: {by_module}"],
            cases=[Case(hint, file="adapter_config.json") for hint in hints],
            count=len(lost),
            total=len(words),
        )

    def _without_tensor(self, adapted: Collection[str]) -> list[str]:
        """The names in target_modules that no saved module ends with; of a pattern, that are in no module's path."""
        targets = self.subject.adapter_config.get("target_modules")
        if isinstance(targets, str):
            parts = {part for module in adapted for part in module.split(".")}
            return [word for word in self._words() if word not in parts and word != targets]
        saved_modules = (*adapted, *list_modules(find_replaced_tensors(self.subject.tensors)))
        return [
            word
            for word in self._words()
            if not any(matches_target(module, word) for module in saved_modules)
        ]

    def _hints(self, lost: Iterable[str], counts: Mapping[str, int]) -> Iterator[str]:
        """The lost names, each with the module of the base, or of the adapter, that it is like."""
        known: Iterable[str] = counts
        if self.subject.base is not None:
            known = {
                module.rpartition(".")[2] for module in list_modules(self.subject.base.tensors)
            }
        names = sorted(known)
        for target in lost:
            near = difflib.get_close_matches(target, names, n=1)
            yield f"{target} (did you mean {near[0]}?)" if near else target
