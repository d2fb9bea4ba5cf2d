"""A head that was trained is not in the file.

## What it does
Compares `modules_to_save` and `task_type` of adapter_config.json, and the architecture in config.json, with the
tensors: a classifier, a reward head or another module that is named there must be in the file. A run whose log has
the curves of a reward trainer must have a `score` too. Of a model whose head may have another name, none must be left:
nothing but layers, embeddings, norms and the head over the vocabulary.

## Why it is bad
The head is filled with random numbers on loading: random scores, with a warning about newly initialized weights.

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
Train again with the right `task_type` (peft then saves the head), or name the head in `modules_to_save`.

## References
- huggingface/trl#1379, huggingface/peft#577, huggingface/peft#876, OpenRLHF/OpenRLHF#1342
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from truetune.checkpoint.adapter_tensor_names import (
    find_replaced_tensors,
    list_modules,
    matches_target,
    parse_adapter_tensors,
)
from truetune.checkpoint.embedding_matrices import HEAD_NAMES as OF_TOKENS
from truetune.checks.checkpoint.architecture import architectures
from truetune.checks.checkpoint.layers import layer_of
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.checks.unmet_reasons import BROKEN

HEADS = {
    "SEQ_CLS": ("classifier", "score"),
    "TOKEN_CLS": ("classifier", "score"),
    "QUESTION_ANS": ("qa_outputs",),
}
ENDINGS = {
    "ForSequenceClassification": ("classifier", "score", "classification_head", "pooler"),
    "ForTokenClassification": ("classifier", "score"),
    "ForQuestionAnswering": ("qa_outputs", "score"),
}
NO_HEAD = ("emb", "wte", "wpe", "shared", "norm", "ln_f", *OF_TOKENS)
"""Parts of the names of what stands outside the layers and is no head for a task"""
REWARD = {"mean_reward", "margin"}
"""What TRL's RewardTrainer logs"""


class HeadNotSaved(CheckpointRule):
    code = "CKP010"
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        if self.subject.faults:
            return BROKEN
        return (
            None
            if self._named()
            else Unmet("nothing names a head besides that over the vocabulary")
        )

    def figure(self) -> str:
        return (
            f"there is a tensor for each of {len(self._named()):,} names:"
            f" {', '.join(self._named()[:4])}"
        )

    def _named(self) -> list[str]:
        """What names a head: modules to save, the task, the class of the model."""
        config = self.subject.adapter_config
        listed, task, mapping = (
            config.get("modules_to_save"),
            config.get("task_type"),
            config.get("auto_mapping"),
        )
        saved_too = (
            [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
        )
        classes = [
            *architectures(self.subject.config),
            str((mapping or {}).get("base_model_class")),
        ]
        heads = [name for name in classes if name.endswith(tuple(ENDINGS))]
        return [
            *saved_too,
            *([task] if task in HEADS else []),
            *heads,
            *(["rewards"] if self._rewards() else []),
        ]

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        if found.faults or not found.tensors:
            return
        lost = dict(self._adapter() if found.kind == "adapter" else self._model())
        if lost:
            names = ", ".join(lost)
            yield self.finding(
                f"no tensor of {names} is in the file: {next(iter(lost.values()))}",
                "name the head in modules_to_save (or set the right task_type), and train again",
                evidence=[f"{name}: {why}" for name, why in list(lost.items())[1:]],
                count=len(lost),
            )

    def _adapter(self) -> Iterator[tuple[str, str]]:
        found = self.subject
        config = found.adapter_config
        whole = list_modules(find_replaced_tensors(found.tensors)) | {
            piece.module for piece in parse_adapter_tensors(found.tensors)
        }
        task = config.get("task_type")
        either = HEADS.get(task, ()) if isinstance(task, str) else ()
        named = config.get("modules_to_save")
        for name in named if isinstance(named, list) else ():
            if (
                isinstance(name, str)
                and name not in either
                and not any(matches_target(module, name) for module in whole)
            ):
                yield name, "modules_to_save names it"
        if either and not _any(whole, either):
            yield " or ".join(either), f"the task is {task}"
        mapping = config.get("auto_mapping")
        made = mapping.get("base_model_class") if isinstance(mapping, dict) else None
        yield from self._by_class(
            [made] if isinstance(made, str) else [], whole, find_replaced_tensors(found.tensors)
        )
        if not either and self._rewards() and not _any(whole, HEADS["SEQ_CLS"]):
            yield "score", "the log has the curves of a reward model"

    def _model(self) -> Iterator[tuple[str, str]]:
        yield from self._by_class(
            list(architectures(self.subject.config)),
            list_modules(self.subject.tensors),
            self.subject.tensors,
        )

    def _by_class(
        self, classes: list[str], present: set[str], names: Iterable[str]
    ) -> Iterator[tuple[str, str]]:
        if any(
            layer_of(name) is None and not any(part in name.lower() for part in NO_HEAD)
            for name in names
        ):
            return
        for name in classes:
            for ending, heads in ENDINGS.items():
                if name.endswith(ending) and not _any(present, heads):
                    yield " or ".join(heads[:2]), f"the model is a {name}"

    def _rewards(self) -> bool:
        history = self.subject.trainer_state.get("log_history")
        return isinstance(history, list) and any(
            isinstance(e, dict) and e.keys() >= REWARD for e in history
        )


def _any(present: set[str], names: tuple[str, ...]) -> bool:
    return any(matches_target(module, name) for module in present for name in names)
