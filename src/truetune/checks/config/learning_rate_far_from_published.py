"""The learning rate is an order of magnitude away from every published one for this method.

## What it does
Compares the learning rate of an AdamW run with what is published for its method, for all weights and for LoRA. From 0.1
on it is an error: a single step overwrites the weights. It is info if an adapter is trained on preferences with less
than the published learning rates for adapters.

| | all weights | LoRA | warned below | warned above |
|---|---|---|---|---|
| DPO | 5e-7 to 5e-6 | 5e-6 to 5e-5 | 1e-8, LoRA 1e-6 | 2e-5, LoRA 2e-4 and more |
| SimPO (`CPOTrainer`, `loss_type="simpo"`) | 3e-7 to 1e-6 | 5e-6 to 5e-5 | 1e-8, LoRA 1e-6 | 1e-5, LoRA 2e-4 and more |
| KTO | 5e-7 to 5e-6 | 5e-7 to 5e-5 | 1e-8, LoRA 1e-7 | 2e-5, LoRA 2e-4 and more |
| ORPO | 5e-6 to 8e-6 | 5e-6 to 5e-5 | 1e-6 | 2e-4, LoRA 1e-3 and more |
| GRPO, RLOO and related methods | 5e-7 to 5e-6 | 1e-6 to 5e-5 | 1e-8, LoRA 1e-7 | 1e-4, LoRA 1e-3 and more |
| reward models | 5e-6 to 2e-5 | 2e-5 to 1e-4 | 1e-8, LoRA 1e-7 | 5e-4, LoRA 5e-3 and more |
| SFT | 1e-5 to 5e-5 (tiny models 1e-3) | 1e-4 to 5e-4 | 1e-7, LoRA 5e-6 | 2e-3, from 1B on 2e-4, LoRA 1e-2 |

## Why it is bad
With a learning rate for SFT, DPO lowers the log-probabilities of chosen and rejected answers together: accuracy is 1.0
at once, and the generated text breaks. With a learning rate for DPO or full fine-tuning, an SFT adapter hardly changes.
Both losses look normal.

## Example
```yaml
config:
  model_name_or_path: some/model
  stage: dpo
  do_train: true
  dataset: pairs
  finetuning_type: full
  pref_beta: 0.1
  learning_rate: 0.00002
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  stage: dpo
  do_train: true
  dataset: pairs
  finetuning_type: full
  pref_beta: 0.1
  learning_rate: 0.0000005
```

## Fix safety
The best learning rate depends on model, batch and data; the table says what worked for others. Watch the
log-probability of the chosen answers.

## References
- huggingface/alignment-handbook#46, huggingface/alignment-handbook#38, hiyouga/LLaMA-Factory#5325
- ORPO (arXiv:2403.07691, 8e-6; alignment-handbook's zephyr-orpo 5e-6)
- princeton-nlp/SimPO README, "Hyperparameters" (3e-7 to 1e-6; 1e-5 makes incoherent answers)
- alignment-handbook's recipes (zephyr-7b-beta: SFT 2e-5, LoRA 2e-4; DPO 5e-7, LoRA 5e-6), TRL's `DPOConfig` (1e-6),
  "LoRA Without Regret" (LoRA wants about ten times the rate of full training)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.config.evidence.do_adamw_rates_apply import published_adamw_rates_apply
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    setting_case,
    value_at_dotted_key,
)
from truetune.checks.config.evidence.settings_read_by_another_program import keeps_stack_defaults
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.identify_model_by_published_name import model_identity
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config


class PublishedRates(NamedTuple):
    """Learning rates: what is warned of at either end, and what is published between."""

    low: float
    usual: str
    high: float

    @property
    def least_published(self) -> float:
        """The lower end of what is published."""
        return float(self.usual.split(" to ")[0])


RATE_RANGES = {
    ("preference", False): PublishedRates(1e-8, "5e-7 to 5e-6", 2e-5),
    # 1e-6 itself is the default of TRL's DPOConfig; 5e-7 is a rate for all weights, ten times below the lowest of LoRA.
    ("preference", True): PublishedRates(1e-6, "5e-6 to 5e-5", 2e-4),
    ("simpo", False): PublishedRates(1e-8, "3e-7 to 1e-6", 1e-5),
    ("kto", False): PublishedRates(1e-8, "5e-7 to 5e-6", 2e-5),
    ("kto", True): PublishedRates(
        1e-7, "5e-7 to 5e-5", 2e-4
    ),  # the command of TRL's kto.py trains a LoRA at 5e-7
    # Its loss is that of SFT with a term beside it; 1e-6 is the default of TRL's ORPOConfig.
    ("orpo", False): PublishedRates(1e-6, "5e-6 to 8e-6", 2e-4),
    ("orpo", True): PublishedRates(1e-6, "5e-6 to 5e-5", 1e-3),
    # 1e-6 is the default of verl, OpenRLHF and TRL's GRPOConfig; open-r1 trains small models at 2e-5.
    ("rewards", False): PublishedRates(1e-8, "5e-7 to 5e-6", 1e-4),
    ("rewards", True): PublishedRates(1e-7, "1e-6 to 5e-5", 1e-3),
    # 1e-4 is the default of TRL's RewardConfig; its examples give 1e-5, with LoRA 1e-4, and InstructGPT 9e-6.
    ("reward", False): PublishedRates(1e-8, "5e-6 to 2e-5", 5e-4),
    ("reward", True): PublishedRates(1e-7, "2e-5 to 1e-4", 5e-3),
    ("sft", False): PublishedRates(1e-7, "1e-5 to 5e-5", 2e-3),
    ("sft", True): PublishedRates(5e-6, "1e-4 to 5e-4", 1e-2),
}
"""Method and whether an adapter is trained -> rates"""
REPLACES_WEIGHTS = 0.1
"""AdamW moves each weight by about the rate at each step, and weights of published models are 0.01 to 0.1"""
KIND_OF_METHOD = {
    "dpo": "preference",
    "kto": "kto",
    "cpo": "preference",
    "orpo": "orpo",
    "sft": "sft",
    "grpo": "rewards",
    "reward": "reward",
}


HIGH_RATE_OF_LARGE_MODEL = 2e-4
"""SFT of all weights of a model of a billion parameters or more: published are up to 5e-5 (Llama-2-7B 2e-5, Qwen2.5
7e-6, SmolLM2-1.7B 3e-4 is the highest); 2e-4 is the usual rate of an adapter"""
ADAPTER_WORDS = re.compile(
    r"peft|lora|adapter|unsloth|swift|prefix|prompt_?tuning|ia3|requires_grad", re.I
)
"""In a program: it may train something smaller than all weights"""
LOADS_MODEL = re.compile(r"\bAutoModel\w*\.from_pretrained\(")
LARGE_MODEL_BILLIONS = 1.0
"""Billions of parameters from which rates of tiny models are none"""


def _names_billion_parameter_model(config: Config) -> bool:
    """Does the name of the model say that it has a billion parameters or more?"""
    named = model_identity(config.spec.model or "")
    size = named.size if named is not None else ""
    if not size.endswith("b"):
        return False
    experts, _, each = size[:-1].rpartition("x")
    return float(each) * float(experts or 1) >= LARGE_MODEL_BILLIONS


def _may_program_train_adapter(config: Config) -> bool:
    """May a program train an adapter that its settings do not show: does it name anything of adapters?

    A program that only imports what makes its model may do so elsewhere.
    """
    if not is_config_of_python_program(config):
        return False
    if ADAPTER_WORDS.search(config.text) is not None:
        return True
    return LOADS_MODEL.search(config.text) is None


class LearningRateFarFromPublished(ConfigRule):
    code = "CFG015"
    fault = Fault.LEARNING_RATE_TOO_HIGH_OR_LOW
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    methods = ("sft", "dpo", "orpo", "cpo", "kto", "grpo", "reward")
    about = ("training.learning_rate",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no rates are published for the method and optimizer.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        if self._published_rates() is None or not published_adamw_rates_apply(self.subject):
            return Unmet(
                "it is about AdamW on all weights or LoRA by SFT, DPO, KTO, ORPO, CPO or GRPO, whose rates are"
                " published"
            )
        return None

    def measurement_if_clean(self) -> str:
        """What was measured: the settings that were compared, and the published rates."""
        published = self._published_rates()
        assert published is not None, "else the rule is not judged"
        return f"{self.describe_compared_settings()}; published are {published.usual}"

    def _published_rates(self) -> PublishedRates | None:
        """The published rates; those of an adapter reach further, which a program may train without a word of it."""
        training = self.subject.spec.training
        adapter = training.lora is not None
        kind = KIND_OF_METHOD.get(training.method, "")
        at = RATE_RANGES.get((kind, adapter))
        # Its adapters are published at the rates of DPO's; its authors warn of 1e-5 on all weights.
        if training.loss_type == "simpo" and not adapter:
            at = RATE_RANGES["simpo", False]
        # A Trainer of transformers may continue a pretraining, whose rates are higher.
        is_tuning = training.method == "sft" and self.subject.stack != "transformers"
        if (
            at is not None
            and not adapter
            and is_tuning
            and _names_billion_parameter_model(self.subject)
            # LitGPT publishes files of 2e-4 for all weights of models up to 9B.
            and self.subject.stack != "litgpt"
        ):
            at = at._replace(high=HIGH_RATE_OF_LARGE_MODEL)
        if at is not None and not adapter and _may_program_train_adapter(self.subject):
            return at._replace(high=RATE_RANGES[KIND_OF_METHOD[training.method], True].high)
        return at

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        rate, adapter = training.learning_rate, training.lora is not None
        at = self._published_rates()
        if not rate or at is None or not published_adamw_rates_apply(config):
            return
        if at.low <= rate < at.high:
            yield from self._findings_below_published(rate, at)
            return
        method = "SimPO" if training.loss_type == "simpo" else training.method.upper()
        what = f"{method} of {'an adapter' if adapter else 'all weights'}"
        yield self.finding(
            f"a learning rate of {rate:g} for {what} is far {'below' if rate < at.low else 'above'}"
            f" the published {at.usual}:"
            f" {'the weights hardly change' if rate < at.low else 'training can ruin the model'}",
            f"set {self._name_of_rate()} to {at.usual.replace(' to ', ', or up to ')}",
            severity="error" if rate >= REPLACES_WEIGHTS else "warning",
            evidence=[f"method {training.method}, {'LoRA' if adapter else 'all weights'}, AdamW"],
            cases=[
                setting_case(config, f"{rate:g}", "training.learning_rate"),
                setting_case(config, training.method, "training.method"),
            ],
        )

    def _name_of_rate(self) -> str:
        """What the file calls the learning rate, where another program reads it by another name."""
        place = self.subject.places.get("training.learning_rate")
        if place is None or place.key.rpartition(".")[2] in ("", "learning_rate"):
            return "learning_rate"
        is_written = value_at_dotted_key(self.subject.raw, place.key) is not None
        return place.key if is_written else "learning_rate"

    def _findings_below_published(self, rate: float, at: PublishedRates) -> Iterator[Finding]:
        """Findings on an adapter below what is published for one: a note, since many small steps
        get there too.

        Of preferences alone, whose trainers' defaults are rates for all weights. SFT at 5e-5 is
        slow, and common.
        """
        config = self.subject
        if config.spec.training.lora is None or rate >= at.least_published:
            return
        is_set = not {"learning_rate", "training.learning_rate"}.isdisjoint(config.places)
        method = config.spec.training.method
        if method == "sft" or not keeps_stack_defaults(config):
            return
        what = f"{method.upper()} of an adapter"
        where = setting_case(config, f"{rate:g}", "training.learning_rate")
        yield self.finding(
            (
                f"a learning rate of {rate:g} for {what} is one for full fine-tuning: published ones for adapters"
                f" are {at.usual}"
            )
            if is_set
            else (
                f"no learning rate is set: the default of {rate:g} for {what} is one for full fine-tuning; published"
                f" ones for adapters are {at.usual}"
            ),
            f"set {self._name_of_rate()} to {at.usual.replace(' to ', ', or up to ')}",
            severity="info",
            cases=[
                where if is_set else Case(f"learning_rate: {rate:g} by default", file=config.path)
            ],
        )
