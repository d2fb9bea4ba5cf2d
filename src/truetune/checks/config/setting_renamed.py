"""A setting goes by another name in this release, or is gone.

## What it does
Finds keys of earlier releases that the assumed one does not know, and says what became of them. Where the notebook, the
script's header or the project's requirements ask for a release that still takes the old name, there is nothing to say;
where none of them names a release, the finding says from which one on it holds.

## Why it is bad
A key from an old tutorial no longer does what it says. TRL's scripts drop `max_seq_length` without a word, and every
row is cut at the default of 1024 tokens; others stop at it, the command `trl` too.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_seq_length: 4096
  per_device_train_batch_size: 2
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 4096
  per_device_train_batch_size: 2
```

## Fix safety
Safe where the name alone changed and the new one is not set, and your release is new enough.

## References
- huggingface/trl#2400, unslothai/unsloth#2904, huggingface/trl#1894, huggingface/course#974
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.keys import at_place, known, offset
from truetune.checks.config.unknown_setting import fate
from truetune.checks.findings import Edit, Finding, Fix
from truetune.checks.rule import ConfigRule
from truetune.spec.config import Renamed
from truetune.spec.pins import Age
from truetune.spec.stacks.facts import DEPRECATED

SAME_VALUE = frozenset(
    ("evaluation_strategy", "max_seq_length", "per_gpu_train_batch_size", "per_gpu_eval_batch_size", "torch_dtype")
    + ("no_cuda", "push_to_hub_token", "use_liger", "noisy_embedding_alpha", "dpo_beta", "dpo_ftx", "dpo_loss")
    + ("dataset_processes", "gc_steps", "name_module_trainable", "num_layer_trainable", "sft_packing")
)
"""Old names whose value can stay as it is."""
STOPS = frozenset(
    ("max_packed_sequence_len", "rope_scaling", "dpo_use_logits_to_keep", "dpo_generate_during_eval")
    + ("dpo_norm_loss", "rpo_alpha", "s2_attention", "flash_attn_rms_norm")
)
"""Old keys of Axolotl at which it stops; others it drops, or takes"""


class SettingRenamed(ConfigRule):
    code = "TT602"
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        names, unknown = known(config), set(config.unknown)
        for old in config.renamed:
            key = old.place.key
            age = self._age(old)
            stops = config.stack == "axolotl" and key in STOPS
            taken = config.stack == "axolotl" and key in DEPRECATED and not stops
            lost = (old.place in unknown or stops) and not taken
            if config.raw.get(key, ...) is None or age == "older" or not (lost or old.now):
                continue
            since = f"{old.package} {old.taken.gone}" if old.taken else f"{config.stack} {config.version}"
            later = " and later" if old.taken else ""
            asked = config.pins.of(old.package)
            dated = age == "unknown" and old.taken is not None
            evidence = "Axolotl stops at it" if stops else fate(config) if lost else "the old name is still taken"
            yield self.finding(
                f"{key} is {old.now or 'gone'} in {since}{later}",
                (f"write {old.now}" if old.now else "remove it")
                + (f"; before {since}, {key} is right" if dated else ""),
                severity="info" if not lost or (config.own_keys and dated) else "warning",
                evidence=[
                    evidence,
                    f"{old.package} {asked} is asked for in {asked.file}, line {asked.line}"
                    if asked is not None
                    else f"no file here says which release of {old.package} runs",
                ],
                cases=[at_place(old.place, key)],
                fix=self._fix(old) if old.now in names and old.now not in config.raw else None,
            )

    def _age(self, old: Renamed) -> Age:
        """Is the release that runs from before the change?"""
        return "unknown" if old.taken is None else self.subject.pins.age(old.package, *old.taken)

    def _fix(self, old: Renamed) -> Fix | None:
        key, text = old.place.key.rpartition(".")[2], self.subject.text
        start = offset(text, old.place)
        if old.now is None or key not in SAME_VALUE or not text.startswith(key, start):
            return None
        return Fix(old.place.file, (Edit(start, start + len(key), old.now),))
