"""The weights equal those of the base, or of an earlier checkpoint, bit by bit.

## What it does
Compares samples of all tensors of a full model with those of the base that is given. In an adapter, it compares the
modules that were trained as a whole (`modules_to_save`) with those of the base, unless its low-rank pairs are zero too.
A folder `checkpoint-N` is compared with the checkpoint before it as well.

## Why it is bad
Training or merging changed nothing: an adapter without effect was merged, the base was saved instead of the tuned
model, or every update was rounded away. A head that an adapter saved as it was before training is often still random:
the pairs then learned to serve a head that knows nothing.

## Example
```yaml
llama: 2
base: {llama: 2}
```

## Use instead
```yaml
llama: 2
tensors:
  model.layers.0.mlp.up_proj.weight: {add: 0.01}
base: {llama: 2}
```

## Fix safety
Check the adapter before the merge (`adapter-file-empty`, `adapter-keys-do-not-match`), and check which object was
saved. In an adapter, check that the module is in the optimizer (`truetune run -- COMMAND`), and that the copy that peft
trains is the one that was saved.

## References
- huggingface/peft#2105, huggingface/transformers#31293
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from truetune.checkpoint.adapter_tensor_names import (
    find_replacement_tensors,
    group_low_rank_tensors,
    matches_target,
)
from truetune.checkpoint.compare_tensor_samples import (
    SampledChange,
    are_all_values_equal,
    compare_sampled_tensors,
)
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.read_weight_files_and_faults import read_weight_headers
from truetune.checks.checkpoint.resume_state_missing import CHECKPOINT_NAME
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.identify_model_by_published_name import is_named_like_tuned_weights
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

MAY_BE_A_COPY = Unmet(
    "it is about trained weights, and the name of this folder does not say that it holds any"
)

NO_SAVED_MODULE = Unmet(
    "it is about adapters with modules that were trained whole, which are in the base too"
)


class WeightsEqualTheBase(CheckpointRule):
    code = "CKP016"
    fault = Fault.SAVED_MODEL_IS_THE_BASE
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    goes_by_signs = True
    judges_changes = True
    compares = True

    def unmet(self) -> Unmet | None:
        if self._changes_from_earlier_checkpoint:
            return None
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        checkpoint = self.subject
        if checkpoint.kind == "adapter":
            return None if self._tensors_of_wholly_trained_modules() else NO_SAVED_MODULE
        if self._may_folder_be_a_base_copy():
            return MAY_BE_A_COPY
        if checkpoint.sampled_changes_from_base and set(
            checkpoint.sampled_changes_from_base
        ) == set(checkpoint.tensors):
            return None
        return Unmet(
            f"{len(checkpoint.sampled_changes_from_base):,} of {len(checkpoint.tensors):,} tensors can be compared with"
            " the base's"
        )

    def _changes_of_replaced_tensors(self) -> dict[str, SampledChange]:
        """How far the whole tensors of an adapter are from the base's, by the base's names."""
        checkpoint, base = self.subject, self.subject.base
        replaced = find_replacement_tensors(checkpoint.tensors)
        return compare_sampled_tensors(replaced, base.tensors) if base is not None else {}

    def _tensors_of_wholly_trained_modules(self) -> dict[str, list[tuple[str, StoredTensor]]]:
        """The tensors, under the base's names, of each module that an adapter trained whole and the base has too."""
        named = self.subject.adapter_config.get("modules_to_save")
        # peft may save an embedding that was not trained: only what the configuration names was to be.
        names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
        replaced = find_replacement_tensors(self.subject.tensors)
        modules: dict[str, list[tuple[str, StoredTensor]]] = {}
        for tensor_name in self._changes_of_replaced_tensors():
            module = _named_module_that_holds_tensor(names, tensor_name)
            if module is not None:
                modules.setdefault(module, []).append((tensor_name, replaced[tensor_name]))
        return modules

    def _may_folder_be_a_base_copy(self) -> bool:
        """May the folder hold a copy of the base, because nothing says that it was trained or merged?"""
        checkpoint = self.subject
        return checkpoint.is_base_found_beside and not is_named_like_tuned_weights(
            checkpoint.folder.name
        )

    def measurement_if_clean(self) -> str:
        """How many tensors differ from the base's, or from those of the checkpoint before."""
        if self.subject.base is None:
            earlier = self._changes_from_earlier_checkpoint.values()
            moved = sum(change.same < change.seen for change in earlier)
            return (
                f"{moved:,} of {len(earlier):,} tensors differ from those of the checkpoint before"
            )
        if self.subject.kind == "adapter":
            count = len(self._tensors_of_wholly_trained_modules())
            return f"{count:,} of {count:,} modules that were trained whole differ from the base's"
        movements = self.subject.sampled_changes_from_base.values()
        moved = sum(movement.same < movement.seen for movement in movements)
        return f"{moved:,} of {len(movements):,} tensors differ from the base's"

    def findings(self) -> Iterator[Finding]:
        checkpoint, base = self.subject, self.subject.base
        yield from self._finding_on_equal_earlier_checkpoint()
        if checkpoint.kind == "adapter":
            yield from self._findings_on_unchanged_whole_modules()
            return
        if checkpoint.kind != "model" or base is None or not checkpoint.sampled_changes_from_base:
            return
        if self._may_folder_be_a_base_copy():
            return
        # A tensor that the base has not was added by the training, so something was learned.
        if set(checkpoint.sampled_changes_from_base) != set(checkpoint.tensors):
            return
        movements = checkpoint.sampled_changes_from_base.values()
        if any(movement.same != movement.seen for movement in movements):
            return
        seen = sum(movement.seen for movement in movements)
        total = sum(tensor.value_count for tensor in checkpoint.tensors.values())
        yield self.finding(
            f"all {len(movements):,} tensors equal those of {base.folder.name} bit by bit:"
            " nothing was learned or merged",
            "before merging, check that the adapter has an effect (truetune check ADAPTER), and save the trained"
            " model, not the base",
            evidence=[f"{seen:,} of {total:,} values were compared"],
        )

    @cached_property
    def _changes_from_earlier_checkpoint(self) -> dict[str, SampledChange]:
        """How far the tensors of a numbered checkpoint are from those of the one before it; empty without one, and
        where they are not the same tensors.
        """
        earlier = _earlier_checkpoint(self.subject.folder)
        if earlier is None or not self.subject.tensors:
            return {}
        is_adapter = self.subject.kind == "adapter"
        tensors = read_weight_headers(earlier, adapter=is_adapter).tensors
        changes = compare_sampled_tensors(self.subject.tensors, tensors)
        return changes if changes.keys() == self.subject.tensors.keys() else {}

    def _finding_on_equal_earlier_checkpoint(self) -> Iterator[Finding]:
        """The finding on a checkpoint whose weights are those of the one before it."""
        changes = self._changes_from_earlier_checkpoint
        earlier = _earlier_checkpoint(self.subject.folder)
        if earlier is None or not changes or any(one.same != one.seen for one in changes.values()):
            return
        yield self.finding(
            f"all {len(changes):,} tensors equal those of {earlier.name} bit by bit: nothing was learned between the"
            " two, or the same weights were saved twice",
            "check that the saved object is the one that is trained (trainer.model), and that its learning rate is not"
            " 0 (truetune diagnose FOLDER)",
            evidence=[f"{sum(one.seen for one in changes.values()):,} values were compared"],
        )

    def _findings_on_unchanged_whole_modules(self) -> Iterator[Finding]:
        """The finding on modules that an adapter trained whole, and that equal the base's."""
        base = self.subject.base
        if base is None or self._do_all_low_rank_pairs_change_nothing():
            return
        modules = self._tensors_of_wholly_trained_modules()
        equal = {
            module: tensors
            for module, tensors in modules.items()
            if all(map(self._equals_the_bases, tensors))
        }
        if equal:
            values = sum(tensor.value_count for tensors in equal.values() for _, tensor in tensors)
            yield self.finding(
                f"{', '.join(equal)} in modules_to_save equals that of {base.folder.name} bit by bit:"
                " it was never trained, or another copy of it was saved",
                "check that it is in the optimizer (truetune run -- COMMAND), train again, and save the"
                " model that the trainer has (trainer.model)",
                evidence=[f"{values:,} of {values:,} values were compared"],
                cases=[
                    Case(name, file=tensor.file.name)
                    for tensors in equal.values()
                    for name, tensor in tensors
                ],
                count=len(equal),
                total=len(modules),
            )

    def _equals_the_bases(self, named_tensor: tuple[str, StoredTensor]) -> bool:
        """Is a tensor, under the base's name for it, that of the base?"""
        name, tensor = named_tensor
        base = self.subject.base
        change = self._changes_of_replaced_tensors()[name]
        return (
            base is not None
            and change.same == change.seen
            and are_all_values_equal(tensor, base.tensors[name])
        )

    def _do_all_low_rank_pairs_change_nothing(self) -> bool:
        """Does no low-rank pair do anything? `adapter-file-empty` then says that nothing was trained."""
        values = self.subject.nan_inf_and_constant_counts
        pairs = group_low_rank_tensors(self.subject.tensors)
        return bool(pairs) and all(
            any(tensor.name in values and values[tensor.name].zero for tensor in parts.values())
            for parts in pairs.values()
        )


def _earlier_checkpoint(folder: Path) -> Path | None:
    """The numbered checkpoint before this one in the same run; None where there is none."""
    own = CHECKPOINT_NAME.fullmatch(folder.resolve().name)
    if own is None:
        return None
    matches = (
        (CHECKPOINT_NAME.fullmatch(path.name), path)
        for path in folder.resolve().parent.glob("checkpoint-*")
    )
    numbered = {int(match[1]): path for match, path in matches if match is not None}
    earlier = [number for number in numbered if number < int(own[1])]
    return numbered[max(earlier)] if earlier else None


def _named_module_that_holds_tensor(names: list[str], tensor: str) -> str | None:
    """The module that one of the names means and that holds a tensor; None if there is none.

    A head of several layers is one module: one of them without a change shows nothing.
    """
    module = tensor.rpartition(".")[0]
    while module and not any(matches_target(module, name) for name in names):
        module = module.rpartition(".")[0]
    return module or None
