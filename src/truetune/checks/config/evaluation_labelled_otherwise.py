"""Training and evaluation compute the loss over different tokens.

## What it does
Compares the loss masks of both data sets, as the settings define them. In a torchtune recipe these are `train_on_input`
of `dataset` and of `dataset_val`. In Axolotl, the loss covers the whole row for `test_datasets` of type `completion`,
while training rows of another type without `train_on_inputs` only count the answers.

## Why it is bad
The training loss is a mean over answer tokens, the evaluation loss a mean over prompts and answers (or the other way
round). They differ from the first step on, so comparing them does not show overfitting.

## Example
```yaml
config:
  model: {_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_attn_modules: [q_proj, v_proj]}
  tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 2048}
  dataset: {_component_: torchtune.datasets.chat_dataset, source: json, data_files: a.json, train_on_input: false}
  dataset_val: {_component_: torchtune.datasets.chat_dataset, source: json, data_files: b.json, train_on_input: true}
  batch_size: 2
  epochs: 1
```

## Use instead
```yaml
config:
  model: {_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_attn_modules: [q_proj, v_proj]}
  tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 2048}
  dataset: {_component_: torchtune.datasets.chat_dataset, source: json, data_files: a.json, train_on_input: false}
  dataset_val: {_component_: torchtune.datasets.chat_dataset, source: json, data_files: b.json, train_on_input: false}
  batch_size: 2
  epochs: 1
```

## Fix safety
The evaluation loss changes and can't be compared with that of earlier runs. The training does not change.

## References
- torchtune documentation, `chat_dataset` (`train_on_input`); Axolotl documentation, dataset formats (`completion`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

PLAIN_TEXT = "completion"
"""Axolotl's type of rows without a prompt: all of their tokens are labelled"""
NOT_SAID = Unmet(
    "it is about settings that say how the rows of training and evaluation are labelled",
    "give dataset_val.train_on_input (torchtune), or the types of test_datasets (Axolotl)",
)


class Labelling(NamedTuple):
    """Whether prompts are labelled in both data sets, and where the settings say it."""

    train: bool
    held: bool
    cases: tuple[Case, ...]
    remedy: str


class EvaluationLabelledOtherwise(ConfigRule):
    code = "CFG160"
    fault = Fault.EVALUATION_LOSS_NOT_COMPARABLE
    symptoms = ("odd-metrics",)
    severity = "warning"
    stacks = ("torchtune", "axolotl")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the settings do not say how both data sets are labelled.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        return NOT_SAID if _labelling_of_both_data_sets(self.subject) is None else None

    def measurement_if_clean(self) -> str:
        """What was measured: that both data sets are labelled alike."""
        return "the loss covers the same tokens in training and evaluation"

    def findings(self) -> Iterator[Finding]:
        labelling = _labelling_of_both_data_sets(self.subject)
        if labelling is None or labelling.train is labelling.held:
            return
        with_prompts, without = (
            ("training", "evaluation") if labelling.train else ("evaluation", "training")
        )
        yield self.finding(
            f"the {with_prompts} loss covers the prompts, the {without} loss does not: the two cannot be compared",
            labelling.remedy,
            cases=list(labelling.cases),
        )


def _labelling_of_both_data_sets(config: Config) -> Labelling | None:
    """How both data sets are labelled; None where the settings do not say it."""
    if config.stack == "torchtune":
        return _labelling_of_recipe(config)
    return _labelling_of_axolotl(config)


def _labelling_of_recipe(config: Config) -> Labelling | None:
    """How a torchtune recipe labels both data sets, by `train_on_input`; each builder has a default
    of its own.
    """
    train, held = (_train_on_input_of(config.raw.get(name)) for name in ("dataset", "dataset_val"))
    if train is None or held is None:
        return None
    cases = (
        setting_case(config, held, "dataset_val.train_on_input"),
        setting_case(config, train, "dataset.train_on_input"),
    )
    return Labelling(
        train,
        held,
        cases,
        f"set dataset_val.train_on_input to {str(train).lower()}, as in dataset",
    )


def _train_on_input_of(part: Any) -> bool | None:
    """The value of `train_on_input` in a part of a recipe; None where it is not set."""
    value = part.get("train_on_input") if isinstance(part, Mapping) else None
    return value if isinstance(value, bool) else None


def _labelling_of_axolotl(config: Config) -> Labelling | None:
    """How Axolotl labels both data sets, by the types of all entries, where those of one list are
    alike.
    """
    train, held = (_data_set_types(config.raw.get(name)) for name in ("datasets", "test_datasets"))
    if not train or not held or config.raw.get("train_on_inputs") is True:
        return None
    trains_text, holds_text = ({one == PLAIN_TEXT for one in kinds} for kinds in (train, held))
    if len(trains_text) != 1 or len(holds_text) != 1:
        return None
    cases = (
        setting_case(config, held[0], "test_datasets.0.type"),
        setting_case(config, train[0], "datasets.0.type"),
    )
    return Labelling(
        trains_text.pop(),
        holds_text.pop(),
        cases,
        f"set the type of test_datasets to {train[0]}, as in datasets",
    )


def _data_set_types(entries: Any) -> list[str]:
    """The types of a list of data sets; empty where one has none that is a word."""
    rows = entries if isinstance(entries, list) else []
    kinds = [entry.get("type") if isinstance(entry, Mapping) else None for entry in rows]
    return [str(kind) for kind in kinds] if all(isinstance(kind, str) for kind in kinds) else []
