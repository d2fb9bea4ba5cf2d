"""An adapter contains nothing: no tensors, or pairs whose product is zero.

## What it does
Counts the tensors of an adapter, and the modules whose `lora_A` or `lora_B` is zero throughout, so their product is
zero. If that is all of them, it is an error; if only some, a warning. An `adapter_model.bin` of less than 1 kB is an
empty pickle.

## Why it is bad
The tuned model is the base model. If every `lora_B` is zero and `lora_A` is not, these are the weights that PEFT starts
with: another copy was trained. It happens if the file is saved before training, or if a script overrides
`model.state_dict`, so the adapter is filtered out when it is saved. It also happens under DeepSpeed ZeRO-3, where
weights that are not gathered are saved as nothing.

## Example
```yaml
lora: [q_proj]
tensors:
  base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight: {fill: zero}
  base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight: {fill: zero}
```

## Use instead
```yaml
lora: [q_proj]
```

## Fix safety
Remove the assignment to `model.state_dict`, and save with `model.save_pretrained` after training. The trained weights
are lost in this folder; checkpoints of the same run may still have them.

## References
- tloen/alpaca-lora#293, tloen/alpaca-lora#334, tloen/alpaca-lora#446, artidoro/qlora#44,
huggingface/transformers#24551
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.adapter_tensor_names import FACTOR_NAMES, group_low_rank_tensors
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import BROKEN
from truetune.checks.rule import CheckpointRule

# Bytes: a pickle of no tensors has about 440, one of the smallest adapter some thousands. At half, longer module paths
# in an empty pickle would hide it; at double nothing changes.
MAX_BYTES_OF_EMPTY_PICKLE = 1024
REMEDY = "save with model.save_pretrained after training, and do not override model.state_dict"
# An empty file has two usual causes, and the folder of an adapter shows neither.
REMEDY_OF_EMPTY_FILE = (
    f"{REMEDY}; under DeepSpeed ZeRO-3 set stage3_gather_16bit_weights_on_model_save: true (or train with"
    " stage 2): sharded weights that are not gathered are saved as nothing"
)


# The three ways to save what was never trained; which one it was, the folder does not show.
REMEDY_OF_INITIAL_WEIGHTS = (
    "the trained weights are not in this folder: use a checkpoint-N of the run, or train again. To save them, under"
    " DeepSpeed ZeRO-3 call trainer.save_model on every process with stage3_gather_16bit_weights_on_model_save: true"
    " (or run zero_to_fp32.py on a checkpoint); otherwise save the model that the trainer has (trainer.model), after"
    " trainer.train()"
)


class AdapterFileEmpty(CheckpointRule):
    code = "CKP003"
    fault = Fault.ADAPTER_EMPTY_OR_INEFFECTIVE
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_changes = True
    kind = "adapter"
    opens = False

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.faults:
            return BROKEN
        if not self.subject.weights.files and not self.subject.weights.pickled:
            return Unmet(
                "no file with weights is in this folder", "name the folder that holds them"
            )
        if not self.subject.tensors:
            return Unmet(
                "the weights are a pickle, which is not opened", "save them as safetensors"
            )
        return None if self._low_rank_pairs() else Unmet("no tensor of it is of a low-rank pair")

    def measurement_if_clean(self) -> str:
        """That no adapted module has a lora_A or lora_B of zeros, of how many modules."""
        return f"lora_A or lora_B is zero in 0 of {len(self._low_rank_pairs()):,} adapted modules"

    def _low_rank_pairs(self) -> list[tuple[str, list[StoredTensor]]]:
        """(module, tensors) of each low-rank pair, also of one with a single half."""
        pairs = []
        for module, parts in group_low_rank_tensors(self.subject.tensors).items():
            for names in FACTOR_NAMES:
                tensors = [parts[name] for name in names if name in parts]
                if tensors:
                    pairs.append((module, tensors))
        return pairs

    def findings(self) -> Iterator[Finding]:
        checkpoint = self.subject
        if checkpoint.kind != "adapter" or checkpoint.faults:
            return
        if checkpoint.tensors:
            yield from self._finding_on_zero_factors()
            return
        pickles = checkpoint.weights.pickled
        small = {name: size for name, size in pickles.items() if size < MAX_BYTES_OF_EMPTY_PICKLE}
        files = {**checkpoint.weights.files, **small}
        # A larger pickle is not opened, and may hold anything. Where no file is here at all, it may only not have been
        # copied.
        if files and (small or not pickles):
            sizes = ", ".join(f"{name} has {size:,} bytes" for name, size in files.items())
            yield self.finding(
                f"the adapter contains no tensor: {sizes}",
                REMEDY_OF_EMPTY_FILE,
            )

    def _finding_on_zero_factors(self) -> Iterator[Finding]:
        """The finding on modules of which one factor is zero throughout."""
        pairs = self._low_rank_pairs()
        dead = self._zero_tensors(pairs)
        if not dead:
            return
        cases = [
            Case(f"{tensor.name} {list(tensor.shape)} is all zero", file=tensor.file.name)
            for _, tensor in dead
        ]
        factors = " and ".join(sorted({_factor_name(tensor) for _, tensor in dead}))
        count = len({module for module, _ in dead})
        # All of them: nothing was trained, or it was saved before. Some: the others were, and these were never called.
        if count == len(pairs):
            message = (
                f"{factors} is zero in all {count:,} adapted modules: the adapter does nothing"
            )
            remedy = REMEDY
            evidence: tuple[str, ...] = ()
            if all(_is_factor_initialised_with_zeros(tensor) for _, tensor in dead):
                message += ", since these are its initial weights"
                remedy = REMEDY_OF_INITIAL_WEIGHTS
                evidence = self._evidence_of_training()
            yield self.finding(
                message, remedy, evidence=evidence, cases=cases, count=count, total=count
            )
            return
        yield self.finding(
            f"{factors} is zero in {count:,} of {len(pairs):,} adapted modules: they do nothing",
            "find out why these modules got no gradient (truetune run -- COMMAND): they may never be called",
            severity="warning",
            cases=cases,
            count=count,
            total=len(pairs),
        )

    def _zero_tensors(
        self, pairs: list[tuple[str, list[StoredTensor]]]
    ) -> list[tuple[str, StoredTensor]]:
        """The tensors of low-rank pairs that are zero throughout, each with its module."""
        values = self.subject.nan_inf_and_constant_counts
        return [
            (module, tensor)
            for module, tensors in pairs
            for tensor in tensors
            if tensor.name in values and values[tensor.name].zero
        ]

    def _evidence_of_training(self) -> tuple[str, ...]:
        """Evidence in the folder of a training whose weights are not in it."""
        step = self.subject.trainer_state.get("global_step")
        if type(step) is not int or step < 1:
            return ()
        return (
            f"trainer_state.json counts {step:,} steps: they trained another copy of these weights,"
            " or the weights had no gradient",
        )


def _is_factor_initialised_with_zeros(tensor: StoredTensor) -> bool:
    """Is a tensor the factor that PEFT fills with zeros at first: lora_B, or lora_embedding_A of an
    embedding?
    """
    return ("embedding" in tensor.name.rsplit("lora_", 1)[-1]) == (_factor_name(tensor) == "lora_A")


def _factor_name(tensor: StoredTensor) -> str:
    """`lora_A` or `lora_B`; embeddings have factors of the same letters."""
    return "lora_A" if "_A" in tensor.name.rsplit("lora_", 1)[1] else "lora_B"
