"""The saved model or adapter is not what the training beside it wrote.

## What it does
Compares the folder with the numbered checkpoints in or beside it, and with the adapter beside it that was merged. It
fires if

- its weight files are equal to those of two different checkpoints;
- a quarter or less of what the last checkpoint changed in the base is in it (an average that has barely moved);
- its weights came from a folder whose chat template, or ids of added tokens, are other ones;
- an adapter's rank, alpha or scaling differ from those of its checkpoints, or it lacks some of their tensors.

## Why it is bad
The model that is given away is not the one that was trained and tested: half of it is older, it is nearly the base, it
is asked with another prompt, or its adapter works at another strength. It loads, and answers a little worse.

## Example
```yaml
llama: 2
merge: 1.0
files: {chat_template.jinja: "{{ messages[0].content }}"}
adapter:
  lora: [q_proj]
  files: {chat_template.jinja: "User: {{ messages[0].content }}"}
base: {llama: 2}
```

## Use instead
```yaml
llama: 2
merge: 1.0
files: {chat_template.jinja: "User: {{ messages[0].content }}"}
adapter:
  lora: [q_proj]
  files: {chat_template.jinja: "User: {{ messages[0].content }}"}
base: {llama: 2}
```

## Fix safety
Copy the weights, settings and tokenizer of one checkpoint, or merge again from it. If an average or another template is
meant, nothing has to be changed.

## References
- huggingface/peft#1381, princeton-nlp/SimPO#24, hiyouga/LlamaFactory#7785, huggingface/diffusers#1153 (EMA)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from statistics import median

from truetune.checkpoint.find_merged_adapter_beside import find_merged_adapter_beside
from truetune.checkpoint.find_training_folders_beside import (
    changes_between,
    checkpoints_beside,
    equal_tensors,
    part_of_change,
)
from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checkpoint.tokens_added_beyond_base import read_added_tokens
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.errors import TokenizerError
from truetune.render.find_tokenizer_folder import read_templates

SCALING_KEYS = ("r", "lora_alpha", "use_rslora", "use_dora", "alpha_pattern", "rank_pattern")
"""Settings of LoraConfig that decide how strong an adapter is"""
MIN_COSINE_OF_SAME_TRAINING = 0.5
"""Of the median tensor. Two adapters that were drawn apart have about 0, since A is drawn at random and hardly moves"""
MAX_PART_OF_CHANGE = 0.25
"""Chosen: averages with the base are made with a half or more of the training, and one that has just begun has some
percent"""
MIN_CORRELATION = 0.9
"""As for merged adapters (`find_merged_adapter_beside`)"""


class SavedFolderUnlikeItsTraining(CheckpointRule):
    code = "CKP080"
    fault = Fault.SAVED_WEIGHTS_ALTERED
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "warning"
    judges_changes = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self._checkpoints and self._merged_adapter is None:
            return Unmet("no numbered checkpoint and no merged adapter lies beside it")
        return None

    def measurement_if_clean(self) -> str:
        """How many folders it was compared with."""
        count = len(self._checkpoints) + (self._merged_adapter is not None)
        return f"{count:,} folders of the training beside it agree"

    def findings(self) -> Iterator[Finding]:
        if self.subject.kind == "adapter":
            scaled = list(self._finding_on_other_scaling())
            yield from scaled or self._finding_on_missing_modules()
            return
        mixed = list(self._finding_on_mixed_checkpoints())
        yield from mixed or self._finding_on_small_part()
        yield from self._findings_on_other_prompts()

    @cached_property
    def _checkpoints(self) -> list[Checkpoint]:
        """The numbered checkpoints of the training, the latest last."""
        return checkpoints_beside(self.subject)

    @cached_property
    def _merged_adapter(self) -> Checkpoint | None:
        """The adapter beside it whose change is in its weights."""
        merged = find_merged_adapter_beside(self.subject)
        return merged[0] if merged is not None else None

    @cached_property
    def _equal_tensors(self) -> dict[str, dict[str, bool]]:
        """Checkpoint -> tensor -> is it equal here?"""
        return {
            checkpoint.folder.name: equal_tensors(self.subject, checkpoint)
            for checkpoint in self._checkpoints
        }

    def _finding_on_other_scaling(self) -> Iterator[Finding]:
        """The finding on an adapter whose settings are not those of its training's checkpoints."""
        own = self.subject.adapter_config
        for checkpoint in reversed(self._checkpoints):
            other = checkpoint.adapter_config
            different = [
                f"{key} is {own.get(key)} here but {other[key]} in {checkpoint.folder.name}"
                for key in SCALING_KEYS
                if key in own and key in other and own[key] != other[key]
            ]
            if different and _is_of_same_training(self.subject, checkpoint):
                yield self.finding(
                    f"the adapter is scaled otherwise than its training's checkpoints: {different[0]}",
                    f"copy adapter_config.json of {checkpoint.folder.name}: it is what the weights were trained with",
                    cases=[Case(text, file="adapter_config.json") for text in different],
                    count=len(different),
                )
                return

    def _finding_on_missing_modules(self) -> Iterator[Finding]:
        """The finding on an adapter that lacks tensors of its training's last checkpoint."""
        if not self._checkpoints:
            return
        last = self._checkpoints[-1]
        missing = [name for name in last.tensors if name not in self.subject.tensors]
        if missing and _is_of_same_training(self.subject, last):
            yield self.finding(
                f"{len(missing):,} of {len(last.tensors):,} tensors of {last.folder.name} are not in this adapter,"
                f" which is of the same training: {missing[0]}",
                f"copy the adapter of {last.folder.name}, or save it again with save_pretrained of the trained model",
                cases=[Case(name) for name in missing],
                count=len(missing),
                total=len(last.tensors),
            )

    def _finding_on_mixed_checkpoints(self) -> Iterator[Finding]:
        """The finding on weight files that are those of two checkpoints."""
        files = self._checkpoint_of_each_file()
        steps = Counter(files.values())
        if len(steps) < 2:
            return
        texts = [f"{file} is that of {name}" for file, name in sorted(files.items())]
        yield self.finding(
            f"the weight files are of {len(steps)} checkpoints: {'; '.join(texts[:2])}",
            f"copy all weight files and their index from one checkpoint ({max(steps, key=_step_of)})",
            severity="error",
            cases=[Case(text, file=file) for file, text in zip(sorted(files), texts, strict=True)],
            count=len(files),
        )

    def _checkpoint_of_each_file(self) -> dict[str, str]:
        """Weight file -> the one checkpoint that all its tensors equals; those of none or several are left out."""
        names_by_file: dict[str, list[str]] = {}
        for name, tensor in self.subject.tensors.items():
            names_by_file.setdefault(tensor.file.name, []).append(name)
        files = {}
        for file, names in names_by_file.items():
            fitting = [
                checkpoint
                for checkpoint, equal in self._equal_tensors.items()
                if all(equal.get(name, False) for name in names)
            ]
            if len(fitting) == 1:
                files[file] = fitting[0]
        return files

    def _finding_on_small_part(self) -> Iterator[Finding]:
        """The finding on a model that holds little of what the training changed."""
        if self.subject.base is None or not self._checkpoints:
            return
        last = self._checkpoints[-1]
        part = part_of_change(self.subject, last, self.subject.base)
        if part is None or part.correlation < MIN_CORRELATION:
            return
        if not 0 < part.times <= MAX_PART_OF_CHANGE:
            return
        yield self.finding(
            f"about {part.times:.1%} of what {last.folder.name} changed in the base is in this model: it is nearly"
            " the base",
            f"give away {last.folder.name}; an average over the steps (EMA) needs a decay that fits their number, for"
            " example 0.99 for some hundred steps",
            evidence=[
                f"its change points where the training's does (correlation {part.correlation:.3f})"
            ],
            cases=[Case(f"about {part.times:.1%} of the change of {last.folder.name}")],
        )

    def _findings_on_other_prompts(self) -> Iterator[Finding]:
        """The findings on a template and on ids that are not those of the folder that the weights came from."""
        for source in self._folders_of_same_weights():
            own, of_source = _read_template(self.subject), _read_template(source)
            if own and of_source and own.strip() != of_source.strip():
                yield self.finding(
                    f"the weights are those of {source.folder.name}, but the chat template is not the one there:"
                    " prompts differ from those of the training",
                    f"copy the chat template of {source.folder.name}, unless another one is meant",
                    cases=[Case("", file="chat_template.jinja")],
                )
            moved = _tokens_with_other_id(self.subject, source)
            if moved:
                yield self.finding(
                    f"the weights are those of {source.folder.name}, but {len(moved):,} added tokens have another id"
                    f" than there: {moved[0]}",
                    f"copy the tokenizer of {source.folder.name}: its ids are those of the embedding's rows",
                    severity="error",
                    cases=[Case(text, file="tokenizer.json") for text in moved],
                    count=len(moved),
                )
            return

    def _folders_of_same_weights(self) -> Iterator[Checkpoint]:
        """The folders that the weights came from: a checkpoint that they equal, or an adapter that was merged."""
        for checkpoint in reversed(self._checkpoints):
            equal = self._equal_tensors[checkpoint.folder.name]
            if equal and all(equal.values()):
                yield checkpoint
        if self._merged_adapter is not None:
            yield self._merged_adapter


def _step_of(name: str) -> int:
    """The step in a checkpoint's name."""
    return int(name.rpartition("-")[2])


def _is_of_same_training(adapter: Checkpoint, other: Checkpoint) -> bool:
    """Did two adapters begin with the same random matrices?"""
    cosines = [change.cosine for change in changes_between(adapter, other).values()]
    return bool(cosines) and median(cosines) >= MIN_COSINE_OF_SAME_TRAINING


def _read_template(checkpoint: Checkpoint) -> str | None:
    """The default chat template of a folder; None where it has none, or it can't be read."""
    try:
        return read_templates(checkpoint.folder, dict(checkpoint.tokenizer_config)).get("default")
    except TokenizerError:
        return None


def _tokens_with_other_id(checkpoint: Checkpoint, source: Checkpoint) -> list[str]:
    """Added tokens of both folders whose ids differ."""
    own, other = (read_added_tokens(one.folder) or {} for one in (checkpoint, source))
    return [
        f"{text} is {own[text]:,} here but {id:,} there"
        for text, id in other.items()
        if text in own and own[text] != id
    ]
