"""A trained head is not in the file.

## What it does
Compares `modules_to_save` and `task_type` in adapter_config.json, and the architecture in config.json, with the
tensors: a classifier, a reward head or another module that is named there must be in the file. If the log has the
curves of a reward trainer, a `score` must be there too. Of a model whose head may have another name, it is only
reported if nothing but layers, embeddings, norms and the output head is there.

## Why it is bad
The head is filled with random numbers on loading. Its scores are random, and there is only a warning about newly
initialized weights.

## Example
```yaml
lora: [q_proj]
adapter_config: {task_type: SEQ_CLS, modules_to_save: [classifier, score]}
```

## Use instead
```yaml
lora: [q_proj]
adapter_config: {task_type: SEQ_CLS, modules_to_save: [classifier, score]}
tensors:
  base_model.model.score.weight: {shape: [2, 16]}
```

## Fix safety
Train again with the right `task_type` (peft then saves the head), or name the head in `modules_to_save`. The trained
head can't be recovered from this file.

## References
- huggingface/trl#1379, huggingface/peft#577, huggingface/peft#876, OpenRLHF/OpenRLHF#1342
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from truetune.checkpoint.adapter_tensor_names import (
    find_replacement_tensors,
    list_modules_and_parents,
    matches_target,
    parse_adapter_tensors,
)
from truetune.checkpoint.find_input_embedding_and_output_head import HEAD_NAMES
from truetune.checks.checkpoint.find_layer_stacks_by_tensor_names import layer_number
from truetune.checks.checkpoint.read_text_part_of_model_config import model_classes
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import BROKEN
from truetune.checks.rule import CheckpointRule

HEADS_OF_TASKS = {
    "SEQ_CLS": ("classifier", "score"),
    "TOKEN_CLS": ("classifier", "score"),
    "QUESTION_ANS": ("qa_outputs",),
}
HEADS_OF_CLASSES = {
    "ForSequenceClassification": ("classifier", "score", "classification_head", "pooler"),
    "ForTokenClassification": ("classifier", "score"),
    "ForQuestionAnswering": ("qa_outputs", "score"),
}
NAMES_OUTSIDE_LAYERS = ("emb", "wte", "wpe", "shared", "norm", "ln_f", *HEAD_NAMES)
"""Parts of the names of what stands outside the layers and is no head for a task"""
REWARD_CURVES = {"mean_reward", "margin"}
"""What TRL's RewardTrainer logs"""
SHOWN_NAMES = 4


class HeadNotSaved(CheckpointRule):
    code = "CKP010"
    fault = Fault.TRAINED_HEAD_LOST
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.faults:
            return BROKEN
        if not self._what_names_a_trained_head():
            return Unmet("nothing names a head besides that over the vocabulary")
        return None

    def measurement_if_clean(self) -> str:
        """The names of trained heads, each of which has a tensor."""
        names = self._what_names_a_trained_head()
        return (
            f"there is a tensor for each of {len(names):,} names: {', '.join(names[:SHOWN_NAMES])}"
        )

    def _what_names_a_trained_head(self) -> list[str]:
        """What names a head that was trained: modules to save, the task, the class of the model,
        the curves of the log.
        """
        config = self.subject.adapter_config
        task, mapping = config.get("task_type"), config.get("auto_mapping")
        adapted_class = str((mapping or {}).get("base_model_class"))
        names = self._modules_to_save()
        if task in HEADS_OF_TASKS:
            names.append(task)
        for name in (*model_classes(self.subject.config), adapted_class):
            if name.endswith(tuple(HEADS_OF_CLASSES)):
                names.append(name)
        if self._does_log_show_reward_training():
            names.append("rewards")
        return names

    def _modules_to_save(self) -> list[str]:
        """The modules that adapter_config.json says are trained whole."""
        modules = self.subject.adapter_config.get("modules_to_save")
        return (
            [name for name in modules if isinstance(name, str)] if isinstance(modules, list) else []
        )

    def findings(self) -> Iterator[Finding]:
        checkpoint = self.subject
        if checkpoint.faults or not checkpoint.tensors:
            return
        is_adapter = checkpoint.kind == "adapter"
        lost = dict(
            self._heads_lacking_in_adapter() if is_adapter else self._heads_lacking_in_model()
        )
        if lost:
            names = ", ".join(lost)
            yield self.finding(
                f"no tensor of {names} is in the file, so it would be random: {next(iter(lost.values()))}",
                "name the head in modules_to_save (or set the right task_type) of LoraConfig, and train again",
                evidence=[f"{name}: {reason}" for name, reason in list(lost.items())[1:]],
                count=len(lost),
            )

    def _heads_lacking_in_adapter(self) -> Iterator[tuple[str, str]]:
        """(head, what says that it was trained) of the heads that an adapter lacks."""
        checkpoint = self.subject
        config = checkpoint.adapter_config
        replaced = find_replacement_tensors(checkpoint.tensors)
        pieces = parse_adapter_tensors(checkpoint.tensors)
        # A head may also be adapted by a pair instead of being saved whole.
        modules = list_modules_and_parents(replaced) | {piece.module for piece in pieces}
        task = config.get("task_type")
        task_heads = HEADS_OF_TASKS.get(task, ()) if isinstance(task, str) else ()
        for name in self._modules_to_save():
            # peft names all heads of a task there, of which a model has one.
            if name not in task_heads and not _has_any_module(modules, (name,)):
                yield name, "modules_to_save names it"
        if task_heads and not _has_any_module(modules, task_heads):
            yield " or ".join(task_heads), f"the task is {task}"
        yield from _heads_lacking_by_class(self._class_of_adapted_model(), modules, replaced)
        if task_heads or not self._does_log_show_reward_training():
            return
        if not _has_any_module(modules, HEADS_OF_TASKS["SEQ_CLS"]):
            yield "score", "the log has the curves of a reward model"

    def _class_of_adapted_model(self) -> list[str]:
        """The class of the model under the adapter, where peft wrote it down; else none."""
        mapping = self.subject.adapter_config.get("auto_mapping")
        name = mapping.get("base_model_class") if isinstance(mapping, dict) else None
        return [name] if isinstance(name, str) else []

    def _heads_lacking_in_model(self) -> Iterator[tuple[str, str]]:
        """(head, class that has it) of the heads that a whole model lacks."""
        tensors = self.subject.tensors
        yield from _heads_lacking_by_class(
            model_classes(self.subject.config), list_modules_and_parents(tensors), tensors
        )

    def _does_log_show_reward_training(self) -> bool:
        """Has the log of the run the curves of a reward trainer?"""
        history = self.subject.trainer_state.get("log_history")
        return isinstance(history, list) and any(
            isinstance(entry, dict) and entry.keys() >= REWARD_CURVES for entry in history
        )


def _heads_lacking_by_class(
    classes: Iterable[str], modules: set[str], names: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Heads that a model of such a class has, and that are none of its modules.

    Args:
        classes: class names of transformers.
        modules: those that have tensors.
        names: of all tensors.
    """
    # Another tensor outside of the layers may be the head under another name.
    if any(
        layer_number(name) is None
        and not any(part in name.lower() for part in NAMES_OUTSIDE_LAYERS)
        for name in names
    ):
        return
    for name in classes:
        for ending, heads in HEADS_OF_CLASSES.items():
            if name.endswith(ending) and not _has_any_module(modules, heads):
                yield " or ".join(heads[:2]), f"the model is a {name}"


def _has_any_module(modules: set[str], names: tuple[str, ...]) -> bool:
    """Is one of these names that of a module?"""
    return any(matches_target(module, name) for module in modules for name in names)
