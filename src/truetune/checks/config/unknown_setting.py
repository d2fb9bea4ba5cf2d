"""A setting is not one that the stack knows.

## What it does
Compares each key with those of the stack's release, and names the nearest one. A key without a value is a note.

## Why it is bad
Axolotl drops a key that it does not know without a word, and so do TRL's own scripts (`trl/scripts/sft.py --config`):
with `learning_rte: 5.0e-4` the run uses its default rate. `trl sft`, LLaMA-Factory, `TrainingArguments` and truetune
stop.

## Example
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  num_epochs: 3
  learning_rte: 0.0002
```

## Use instead
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  num_epochs: 3
  learning_rate: 0.0002
```

## Fix safety
Which key was meant is your decision; the nearest name is only near. A key of a newer release, or of a plug-in, is no
fault: ignore the rule for it.

## References
- huggingface/trl#2400, unslothai/unsloth#2904, pydantic's `extra` setting, which ignores unknown keys by default
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.keys import at_place, case, entries, known, of_program
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule
from truetune.spec.config import Config
from truetune.spec.stacks.draft import near
from truetune.spec.stacks.facts import facts

FATE = {
    "axolotl": "Axolotl drops it without a word",
    "trl": "TRL's scripts drop it without a word; the command `trl` stops at it",
    "llama-factory": "LLaMA-Factory stops at it",
    "transformers": "TrainingArguments stops at it",
    "truetune": "truetune stops at it",
}
GENERATING = frozenset(
    ("predict_with_generate", "generation_max_length", "generation_num_beams", "generation_config", "sortish_sampler")
)
"""What Seq2SeqTrainingArguments take more than TrainingArguments"""


def fate(config: Config) -> str:
    """What becomes of a key that the stack does not know."""
    return "the call stops at it" if of_program(config) else FATE[config.stack]


class UnknownSetting(ConfigRule):
    code = "TT601"
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        renamed = {one.place for one in config.renamed}
        for place in config.unknown:
            if place in renamed or (config.stack == "transformers" and place.key in GENERATING):
                continue
            likely = near(place.key.rpartition(".")[2], known(config))
            empty = config.raw.get(place.key, ...) is None
            yield self.finding(
                f"{place.key} is no setting of {config.stack} {config.version}" + (f"; {likely} is" if likely else ""),
                f"write {likely}, or remove it" if likely else "remove it, or look up its name",
                severity="info" if empty else "warning",
                evidence=[fate(config)],
                cases=[at_place(place, place.key)],
            )
        yield from self._of_data_sets()

    def _of_data_sets(self) -> Iterator[Finding]:
        """Keys of Axolotl's data sets, which it drops as well."""
        config = self.subject
        names = facts("axolotl").classes["dataset"] if config.stack == "axolotl" else {}
        lists = ("datasets", "test_datasets", "pretraining_dataset") if names else ()
        for where in [(key, *pair) for key in lists for pair in entries(config, key)]:
            key, index, item = where
            for name in map(str, item):
                if name not in names:
                    likely = near(name, names)
                    yield self.finding(
                        f"{name} is no setting of a data set of axolotl {config.version}"
                        + (f"; {likely} is" if likely else ""),
                        f"write {likely}, or remove it" if likely else "remove it, or look up its name",
                        severity="info" if item[name] is None else "warning",
                        evidence=[fate(config)],
                        cases=[case(config, item[name], f"{key}.{index}.{name}")],
                    )
