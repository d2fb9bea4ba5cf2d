"""FSDP has no wrap policy, so every GPU gathers the whole model at once.

## What it does
Reads the Trainer's `fsdp` (also in Axolotl, LLaMA-Factory and a script's TrainingArguments). It fires for `full_shard`
or `hybrid_shard` without `auto_wrap` and without a policy in `fsdp_config`. It also fires for the policy NO_WRAP, and
for SIZE_BASED_WRAP without `min_num_params`, which accelerate treats as no policy. Without `auto_wrap`, a layer class
named in `fsdp_config` is not used. It does not fire if an accelerate file in the folder has FSDP settings: the launch
may set the policy. From transformers 5.10 on, layers are wrapped without `auto_wrap`: the rule does not fire if the
project asks for such a release, and is info if it names none.

## Why it is bad
The whole model is one unit. Each GPU gathers all weights for each pass and holds the whole gradient before it is
sharded. It needs as much memory as without sharding, plus the shards.

## Example
```yaml
config:
  base_model: Qwen/Qwen3-8B
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  fsdp_config: {auto_wrap_policy: NO_WRAP, transformer_layer_cls_to_wrap: Qwen3DecoderLayer}
```

## Use instead
```yaml
config:
  base_model: Qwen/Qwen3-8B
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  fsdp_config: {auto_wrap_policy: TRANSFORMER_BASED_WRAP, transformer_layer_cls_to_wrap: Qwen3DecoderLayer}
```

## Fix safety
Safe: it changes how weights are grouped, not the training result.

## References
- axolotl-ai-cloud/axolotl#3710
- transformers/training_args.py (`fsdp`; `_apply_legacy_fsdp_to_config` from 5.10 on)
- accelerate/utils/dataclasses.py (FullyShardedDataParallelPlugin)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from truetune.checks.accelerate_and_deepspeed_memory_settings import NO_POLICY
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement
from truetune.checks.rule import ConfigRule
from truetune.errors import TruetuneError
from truetune.settings.located_document import read_text_of_config_size

GATHERING = ("full_shard", "hybrid_shard")
WRAPS = "auto_wrap"
SIZE_POLICY = "SIZE_BASED_WRAP"
"""It wraps what is larger than `min_num_params`, and nothing where that is not set"""
POLICIES = ("auto_wrap_policy", "fsdp_auto_wrap_policy")
LEAST = ("min_num_params", "fsdp_min_num_params")
ACCELERATE_MARKS = ("fsdp_config", "distributed_type")
"""Both are in each file of accelerate's that has settings of FSDP"""
LAST_WITHOUT_DEFAULT, FIRST_WITH_DEFAULT = "5.9.0", "5.10.0"
"""Releases of transformers: the later one takes TRANSFORMER_BASED_WRAP where no policy is named (both were read)"""
MAX_FILES = 60
"""Of a folder. Chosen, not measured: it bounds the time"""
ONE_UNIT = "each GPU gathers the whole model at once, as if nothing were sharded"
MAX_BYTES = 1 << 16
"""Of a file of accelerate's, which has some forty lines"""


class FsdpWithoutWrapPolicy(ConfigRule):
    code = "CFG099"
    fault = Fault.FSDP_DOES_NOT_SHARD_LAYERS
    symptoms = ("out-of-memory", "several-gpus")
    severity = "warning"
    stability = "preview"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Unmet where FSDP does not shard the run.
        """
        if not self._fsdp_options() and self._wrap_policy() is None:
            return Unmet("it is about runs that FSDP shards, and this is none")
        return None

    def measurement_if_clean(self) -> Measurement | str:
        """What was measured: that FSDP is given a wrap policy."""
        return "FSDP is given a policy by which it wraps layers"

    def findings(self) -> Iterator[Finding]:
        policy, options = self._wrap_policy(), self._fsdp_options()
        is_off = policy is not None and policy.upper() in (NO_POLICY, SIZE_POLICY)
        lacks = policy is None and any(one in options for one in GATHERING) and WRAPS not in options
        if is_off:
            yield self._finding_on_policy_wrapping_nothing(policy or "")
        elif lacks and not self._has_fsdp_settings_in_launch():
            yield from self._findings_without_policy(" ".join(options))

    def _finding_on_policy_wrapping_nothing(self, policy: str) -> Finding:
        """The finding on a policy that wraps nothing."""
        what = f"policy {policy}"
        if policy == SIZE_POLICY:
            what += " without min_num_params"
        return self.finding(
            f"FSDP wraps no layer ({what}): {ONE_UNIT}",
            "set auto_wrap_policy to TRANSFORMER_BASED_WRAP",
            cases=[setting_case(self.subject, what, *POLICIES, "fsdp_config", "fsdp")],
        )

    def _findings_without_policy(self, options: str) -> Iterator[Finding]:
        """A finding where no policy is named, unless the release that runs wraps layers all the same."""
        pins = self.subject.pins
        age = pins.age_of_asked_releases("transformers", LAST_WITHOUT_DEFAULT, FIRST_WITH_DEFAULT)
        if age == "current":
            return
        what = f"fsdp: {options} without auto_wrap"
        when = "" if age == "older" else f" in transformers before {FIRST_WITH_DEFAULT}"
        yield self.finding(
            f"FSDP wraps no layer ({what}){when}: {ONE_UNIT}",
            "add auto_wrap to fsdp",
            severity="warning" if age == "older" else "info",
            cases=[setting_case(self.subject, what, "fsdp")],
            evidence=[pins.describe_asked_release("transformers")],
        )

    def _fsdp_options(self) -> list[str]:
        """The words of `fsdp`: a text with spaces, or a list."""
        fsdp_setting = self.subject.raw.get("fsdp")
        if isinstance(fsdp_setting, str):
            return fsdp_setting.lower().split()
        return (
            [str(one).lower() for one in fsdp_setting]
            if isinstance(fsdp_setting, (list, tuple))
            else []
        )

    def _wrap_policy(self) -> str | None:
        """The policy that fsdp_config names, or what stands for one: units by size; None where it names none."""
        # Some settings stand outside of the table.
        own = next(
            (self.subject.raw[name] for name in POLICIES if self.subject.raw.get(name)), None
        )
        if own is not None:
            return str(own)
        table: Any = self.subject.raw.get("fsdp_config")
        if table is None:
            return None
        if not isinstance(table, dict):
            # A file, or what code computes, may hold one.
            return "unknown"
        if any(table.get(name) for name in LEAST):
            return "by size"
        return next((str(table[name]) for name in POLICIES if table.get(name)), None)

    def _has_fsdp_settings_in_launch(self) -> bool:
        """Does a file of accelerate's beside the settings have settings of FSDP?"""
        try:
            files = sorted(Path(self.subject.path).parent.iterdir())[:MAX_FILES]
            near = [
                one
                for one in files
                if one.suffix in (".yaml", ".yml") and one.stat().st_size < MAX_BYTES
            ]
            return any(
                all(mark in text for mark in ACCELERATE_MARKS)
                for text in map(read_text_of_config_size, near)
            )
        except (OSError, TruetuneError):
            return False
