"""The loss covers the prompts as well as the answers.

## What it does
Fires if Axolotl's `train_on_inputs`, LLaMA-Factory's `train_on_prompt` or torchtune's `train_on_input` is on, if
LitGPT's `mask_prompt` is false or ms-swift's `loss_scale` is all, if Axolotl's `roles_to_train` names the user or the
system as well as the assistant, or if TRL's `completion_only_loss` is off for rows with a prompt and a completion. If
local rows are available, it counts which share of the characters in the loss belongs to prompts; below 20 % it is info.
It does the same for labels that a script makes itself from rendered chats: the script's code is followed with the rows,
and not run.

## Why it is bad
It can be a choice, but often a copied config makes it for you. The model spends its steps on writing questions, system
prompts and tool results. If prompts are longer than answers, the loss mostly shows how well it writes prompts.

## Example
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: chat_template}]
  sequence_len: 2048
  micro_batch_size: 2
  train_on_inputs: true
```

## Use instead
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: chat_template}]
  sequence_len: 2048
  micro_batch_size: 2
  train_on_inputs: false
```

## Fix safety
The loss then covers the answers only, and can't be compared with earlier runs. To train on prompts on purpose, ignore
this rule.

## References
- axolotl-ai-cloud/axolotl#1608, Huang et al., "Instruction Tuning With Loss Over Instructions" (arXiv:2405.14394)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.checks.config.evidence.columns_and_age_of_training_files import (
    columns_of_file,
    training_columns,
)
from truetune.checks.config.evidence.is_tokenizer_on_this_machine import has_local_tokenizer
from truetune.checks.config.evidence.prompt_share_of_learned_text import (
    PromptShare,
    measure_prompt_characters,
    only_rows_file_beside,
)
from truetune.checks.config.evidence.script_token_ids_by_stand_in_tokenizer import (
    find_wholly_learned_prompts,
)
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    numbered_tables_of_list,
    setting_case,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import ConfigRule
from truetune.data.answering_roles import ANSWERING_ROLES
from truetune.settings.config import Config
from truetune.settings.row_formats import is_script_named_as_format

PROMPT_ROLES = frozenset(("user", "human", "system", "tool"))
"""Roles of the turns before an answer, by their names in published chats"""
SMALL_SHARE = 0.2
"""Of what is learned. Chosen, not measured: short questions before long answers change little"""


class PromptsAreLearned(ConfigRule):
    code = "CFG024"
    fault = Fault.PROMPTS_IN_LOSS
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    methods = ("sft",)
    moot_where = ("prompts-supervised-in-token-rows",)
    reads = ("training.train_on_inputs",)

    def findings(self) -> Iterator[Finding]:
        if self.subject.spec.training.method != "sft":
            return
        cases = [
            *self._cases_of_settings_learning_whole_rows(),
            *self._cases_of_trained_prompt_roles(),
        ]
        if not cases:
            yield from self._findings_on_script_labels()
            return
        learned = measure_prompt_characters(self.subject)
        is_small = learned is not None and learned.share < SMALL_SHARE
        # LitGPT's published files learn prompts, all of them.
        is_published = learned is None and self.subject.stack == "litgpt"
        yield self.finding(
            f"the loss covers the prompts as well as the answers{_prompt_share_in_words(learned)}",
            f"{self._remedy()}, unless you want to train on prompts",
            severity="info" if is_small or is_published else None,
            evidence=[] if learned is None else [_counted_rows_in_words(learned)],
            cases=cases,
        )

    def _findings_on_script_labels(self) -> Iterator[Finding]:
        """Findings on the labels that a script makes of chats itself; where its tokenizer is available,
        rules on token ids judge them.
        """
        config = self.subject
        if not is_script_named_as_format(config.path) or has_local_tokenizer(config):
            return
        learned = find_wholly_learned_prompts(config.path)
        if learned is None:
            return
        yield self.finding(
            f"the labels of all {learned.rows:,} rows contain the prompts as well as the answers: prompts are about"
            f" {learned.share:.0%} of the text in the loss",
            "set the labels of the prompt tokens to -100, unless you want to train on prompts",
            severity="info" if learned.share < SMALL_SHARE else None,
            evidence=["the code that makes the labels was followed, not run"],
            cases=[Case("the first of these rows", file=learned.file, line=learned.line)],
        )

    def _cases_of_settings_learning_whole_rows(self) -> Iterator[Case]:
        """The settings that put the whole row into the loss, for rows that have prompts."""
        config, training = self.subject, self.subject.spec.training
        sets = [item for _, item in numbered_tables_of_list(config, "datasets")]
        plain = bool(sets) and all(
            str(item.get("type") or "completion").startswith("completion") for item in sets
        )
        if training.train_on_inputs and not plain:
            yield setting_case(config, True, "training.train_on_inputs")
        if _recipe_trains_on_input(config):
            yield setting_case(config, True, "dataset.train_on_input")
        if _is_swift_loss_on_all(config):
            yield setting_case(config, "all", "loss_scale")
        if training.completion_only_loss is False and _has_prompts_and_completions(config):
            yield setting_case(config, False, "training.completion_only_loss")

    def _remedy(self) -> str:
        """The settings that take the prompts out of the loss."""
        places = self.subject.places
        edits = {
            "training.completion_only_loss": "set completion_only_loss: true",
            "training.train_on_inputs": "set {key}: false",
        }
        if any(self._cases_of_trained_prompt_roles()):
            return "remove the roles of the prompt (user, system, tool) from roles_to_train"
        if _recipe_trains_on_input(self.subject):
            return "set train_on_input: false in dataset"
        if _is_swift_loss_on_all(self.subject):
            return "set loss_scale to default, or remove it"
        if self.subject.stack == "litgpt":
            return "set data.init_args.mask_prompt: true"
        field = (
            "training.train_on_inputs"
            if self.subject.spec.training.train_on_inputs
            else "training.completion_only_loss"
        )
        key = places[field].key if field in places else field.rpartition(".")[2]
        return edits[field].format(key=key)

    def _cases_of_trained_prompt_roles(self) -> Iterator[Case]:
        """The data sets whose `roles_to_train` names roles of the prompt beside that of the answers."""
        for index, item in numbered_tables_of_list(self.subject, "datasets"):
            roles = item.get("roles_to_train")
            names = [str(role) for role in roles] if isinstance(roles, list) else []
            # Without a role of answers `answers-not-trained` speaks.
            if ANSWERING_ROLES.intersection(names) and PROMPT_ROLES.intersection(names):
                key = f"datasets.{index}.roles_to_train"
                yield setting_case(self.subject, ", ".join(names), key)


def _has_prompts_and_completions(config: Config) -> bool:
    """Have the rows both columns? Rows of one text have no completion, and the switch says nothing of them."""
    columns = training_columns(config)
    if not columns:
        columns = next(
            filter(None, map(columns_of_file, only_rows_file_beside(config))), frozenset()
        )
    return {"prompt", "completion"} <= columns


def _is_swift_loss_on_all(config: Config) -> bool:
    """Does ms-swift put each token of a chat into the loss?"""
    return config.stack == "ms-swift" and str(config.raw.get("loss_scale")) == "all"


def _recipe_trains_on_input(config: Config) -> bool:
    """Does a torchtune recipe put prompts into the loss? A data set of texts has none that could be left out."""
    dataset = config.raw.get("dataset")
    if config.stack != "torchtune" or not isinstance(dataset, Mapping):
        return False
    is_text = str(dataset.get("_component_", "")).endswith("text_completion_dataset")
    return dataset.get("train_on_input") is True and not is_text


def _prompt_share_in_words(learned: PromptShare | None) -> str:
    """The share of the prompts, as the end of a sentence."""
    return (
        ""
        if learned is None
        else f": prompts are about {learned.share:.0%} of the text in the loss"
    )


def _counted_rows_in_words(learned: PromptShare) -> str:
    """The number of rows, and the mean characters of their prompts and answers, in words."""
    prompts, answers = learned.prompts / learned.rows, learned.answers / learned.rows
    return f"on average over {learned.rows:,} rows, a prompt has {prompts:,.0f} characters and an answer {answers:,.0f}"
