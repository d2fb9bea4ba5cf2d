"""Answers are rewarded by a model whose score head is random.

## What it does
Reads the reward models of TRL's GRPO, RLOO, PPO, online DPO, Nash-MD and XPO trainers. It fires if one is a published
language model of Qwen, Llama, Gemma, Mistral, SmolLM or Phi, by its name or loaded with
AutoModelForSequenceClassification, and not a reward model.

## Why it is bad
A language model has no score head. transformers makes one of random numbers, and says so in a warning that is easily
overlooked. The reward is then a random direction of the last hidden state: it can be raised, and the answers get no
better.

## Example
```python
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification
from trl import GRPOTrainer

judge = AutoModelForSequenceClassification.from_pretrained("Qwen/Qwen2.5-1.5B-Instruct", num_labels=1)
rows = load_dataset("json", data_files="prompts.jsonl", split="train")
GRPOTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", reward_funcs=judge, train_dataset=rows).train()
```

## Use instead
```python
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification
from trl import GRPOTrainer

judge = AutoModelForSequenceClassification.from_pretrained("Skywork/Skywork-Reward-V2-Qwen3-0.6B", num_labels=1)
rows = load_dataset("json", data_files="prompts.jsonl", split="train")
GRPOTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", reward_funcs=judge, train_dataset=rows).train()
```

## Fix safety
There is no automatic fix: train a reward model first (RewardTrainer), or name one.

## References
- modelscope/ms-swift#3926, huggingface/trl#1379
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import Sequence, Value

TRAINERS = tuple(
    f"trl.*{name}Trainer" for name in ("GRPO", "RLOO", "PPO", "OnlineDPO", "NashMD", "XPO")
)
REWARD_ARGUMENTS = ("reward_funcs", "reward_model", "reward_models")
CLASSIFIERS = ("transformers.*ForSequenceClassification.from_pretrained",)
LANGUAGE_MODEL = re.compile(
    r"(?:Qwen/Qwen\d|meta-llama/|google/gemma-|mistralai/M|HuggingFaceTB/SmolLM|microsoft/[Pp]hi-)",
    re.I,
)
"""The beginning of names of models that their makers publish as language models"""
NO_LANGUAGE_MODEL = re.compile(r"reward|guard|rm\b|prm|embed|rerank|judge|classif|shield", re.I)


class RewardModelWithARandomHead(SourceRule):
    code = "SRC582"
    fault = Fault.REWARD_NOT_REPEATABLE
    symptoms = ("nothing-is-learned",)
    severity = "error"
    looks_at = places_of_calls("trainers by rewards", *TRAINERS)

    def findings(self) -> Iterator[Finding]:
        """Findings on reward models that are language models."""
        module = self.subject
        seen = set()
        for trace in traces_of_scripts_that_reach_file(module):
            for trainer in trace.calls(*TRAINERS):
                if trainer.home.path != module.path or trainer.node in seen:
                    continue
                for name, place in _reward_models(trainer):
                    if not LANGUAGE_MODEL.match(name) or NO_LANGUAGE_MODEL.search(name):
                        continue
                    seen.add(trainer.node)
                    yield self.finding(
                        f"{name} is a language model without a score head: transformers makes a random one, and the"
                        " reward means nothing",
                        "name a reward model, or train one first with RewardTrainer",
                        cases=[case_of_node(module, place.node)],
                    )


def _reward_models(trainer: CallEvent) -> Iterator[tuple[str, CallEvent]]:
    """The names of the models that a trainer is rewarded by, each with the call that names it."""
    for argument in REWARD_ARGUMENTS:
        given = trainer.keywords.get(argument)
        for value in given.items if isinstance(given, Sequence) else (given,):
            if value is not None:
                yield from _name_of_reward_model(value, trainer)


def _name_of_reward_model(value: Value, trainer: CallEvent) -> Iterator[tuple[str, CallEvent]]:
    """The name of a reward model that is given by name or loaded as a classifier."""
    plain = constant_of(value)
    if isinstance(plain, str):
        yield plain, trainer
        return
    for way in lineages_back_to_origins(value):
        load = way.call_that_gave_origin
        if load is None or not load.named(*CLASSIFIERS):
            continue
        name = constant_of(load.argument(0, "pretrained_model_name_or_path"))
        if isinstance(name, str):
            yield name, load
