"""Merges an adapter into its base: by peft in float32, proved, and written whole or not at all.

The merged model is compared with base and adapter value by value, and asked the same prompts in memory and after
reading it back. That takes several times as long as the merge, and finds what no loss or file size shows: an adapter
that was added twice, rounded away, or put on another base.
"""

from __future__ import annotations

import contextlib
import gc
import json
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from peft import PeftModel

from truetune.checkpoint.base_fingerprint import fingerprint_base
from truetune.checkpoint.load_checkpoint import Checkpoint, read_checkpoint
from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.checkpoint.weight_diff import MovementManifest
from truetune.checks.checkpoint.adapter_on_another_base import AdapterOnAnotherBase
from truetune.checks.checkpoint.weights_changed_since_training import WeightsChangedSinceTraining
from truetune.checks.findings import Finding
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.weight_diff_report import judge_weights_of_checkpoint
from truetune.data.guard_output_folder import Input
from truetune.errors import UsageError
from truetune.generation.load_model_refusing_missing_weights import adapter_vocabulary, model_class
from truetune.generation.prompts_to_compare_model_forms import (
    ProofPrompts,
    prepare_proof_prompts,
    read_template_and_stop_facts,
)
from truetune.package import __version__
from truetune.training.atomic_folder import (
    copy_tokenizer_files,
    require_empty_folder_apart_from_inputs,
    write_folder_atomically,
)
from truetune.training.prove_merge_or_export import (
    ModelObservation,
    Proof,
    compare_form_with_adapter_on_base,
    load_model_float32,
    make_proof_of_form_comparisons,
    observe_greedy_answers_and_logits,
)

MERGE_FILE = "merge.json"
# The formats in which models are published and that peft's merge can be rounded to.
DTYPE_BYTES = {"bfloat16": 2, "float32": 4, "float16": 2}
"""Bytes of a value"""
DTYPE_NAMES = {"BF16": "bfloat16", "F32": "float32", "F16": "float16"}
RECORD_RULES = (WeightsChangedSinceTraining.name(), AdapterOnAnotherBase.name())
"""Rules whose notes are worth a line: they tell of an adapter_config.json that was edited"""
NOT_PROVED = NotJudged(
    "the answers of the merged model",
    "it was asked nothing",
    unlock="leave --no-proof out",
    asked=False,
)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Merged:
    """The result of a merge: the folder, the proof, and what the rules say of it."""

    folder: Path
    """Where it is; where `failed`, nothing is there"""
    adapter: Path
    base: Path
    dtype: str
    manifest: MovementManifest
    """All values of it against base and adapter"""
    judged: Judgement
    """What the rules say of the merged model, and of the adapter where it is more than a note"""
    proof: Proof | None
    notes: tuple[str, ...]
    seconds: float
    reused: bool = False
    """It was there already, made of the same files"""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the rules found in the merged model, but for notes."""
        return tuple(finding for finding in self.judged.findings if finding.severity != "info")

    @property
    def not_judged(self) -> tuple[NotJudged, ...]:
        """What no rule could judge, and the proof where there is none."""
        return (*self.judged.not_judged, *(() if self.proof or self.reused else (NOT_PROVED,)))

    @property
    def failed(self) -> bool:
        """Does the merged model differ from base and adapter?"""
        return bool(self.proof and self.proof.faults) or any(
            f.severity == "error" for f in self.findings
        )


def merge(
    adapter: str | PathLike[str],
    *,
    base: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    dtype: str | None = None,
    prove: bool = True,
    prompts: int = 4,
    data: Sequence[str] = (),
    device: str = "cpu",
    shard: str = "5GB",
    say: Say = lambda text: None,
) -> Merged:
    """Merge an adapter into its base and save a full model.

    peft merges in float32, and the sum is rounded once. The same prompts are asked of the adapter on its base, of the
    merged model, and of what was read back from the disk. The folder appears at the end, with merge.json in it; where
    the model is not what base and adapter make, or the proof fails, nothing is left there and `failed` says so. The
    same merge, proved, is not made again.

    Args:
        adapter: the folder of adapter_config.json.
        base: the base's folder; else the one that adapter_config.json names.
        out: the new folder; else ADAPTER-merged.
        dtype: what the sum is rounded to; the base's where None.
        prove: ask the models some prompts.
        prompts: how many.
        data: files with rows to take them from; else built-in questions.
        device: where the models are asked.
        shard: the largest file of weights.
        say: is told what is being done.

    Returns:
        The merged model, or what is wrong with it (`failed`).

    Raises:
        UsageError: adapter and base do not belong together, the base is quantized, or the folder can't be taken.
    """
    started = time.perf_counter()
    tuned, under, adapter_judgement = _read_adapter_and_base(Path(adapter), base)
    chosen = dtype or _dtype_of_most_values(under)
    if chosen not in DTYPE_BYTES:
        raise UsageError(f"dtype {chosen}: expected one of {', '.join(DTYPE_BYTES)}")
    folder = Path(out) if out is not None else _default_output_folder(tuned)
    record = {
        "format": 1,
        "truetune": __version__,
        "adapter": fingerprint_base(tuned),
        "base": fingerprint_base(under),
        "settings": dict(tuned.adapter_config),
        "dtype": chosen,
    }
    if _holds_same_merge(folder, record, prove=prove):
        there = replace(read_checkpoint(folder, base=under.folder), adapter=tuned)
        return Merged(
            folder,
            tuned.folder,
            under.folder,
            chosen,
            there.full_comparison_with_base,
            _judge_merge_with_adapter_warnings(there, adapter_judgement),
            None,
            ("made before, of the same files",),
            time.perf_counter() - started,
            reused=True,
        )
    sources = _FileSources(tuned, under)
    inputs = [
        Input("the adapter", tuned.folder),
        Input("the base model", under.folder),
        Input("the tokenizer", sources.tokenizer_folder),
        *(Input("data", Path(name)) for name in data),
    ]
    # Before the models are loaded: a folder that can't be written is told in a second.
    require_empty_folder_apart_from_inputs(folder, inputs)
    proof_prompts = None
    if prove:
        proof_prompts = prepare_proof_prompts(
            sources.tokenizer_folder,
            under.folder,
            count=prompts,
            data=data,
            generation=sources.adapter_generation_config,
        )
    size = DTYPE_BYTES[chosen] * sum(tensor.value_count for tensor in under.tensors.values())
    with (
        contextlib.suppress(_MergeFailed),
        write_folder_atomically(folder, size=size, inputs=inputs) as part,
    ):
        say(f"merging {tuned.folder} into {under.folder} in float32")
        observations = _merge_and_save(tuned, under, proof_prompts, part, chosen, device, shard)
        copied = sources.copy_tokenizer_and_generation_config_into(part)
        there = replace(read_checkpoint(part, base=under.folder), adapter=tuned)
        say("comparing all values with base and adapter")
        judgement = _judge_merge_with_adapter_warnings(there, adapter_judgement)
        proof = None
        if proof_prompts and observations:
            proof = _prove_merge(observations, proof_prompts, part, under, device, say)
        merged = Merged(
            folder,
            tuned.folder,
            under.folder,
            chosen,
            there.full_comparison_with_base,
            judgement,
            proof,
            (*_notes_where_adapter_record_disagrees(adapter_judgement), *copied),
            time.perf_counter() - started,
        )
        (part / MERGE_FILE).write_text(
            json.dumps(record | _facts_of_merge_besides_inputs(merged), indent=1), encoding="utf-8"
        )
        # Raised inside, so that atomic_folder removes what was written; the caller gets the
        # result all the same, with what is wrong in it.
        if merged.failed:
            raise _MergeFailed
    return merged


def _default_output_folder(adapter: Checkpoint) -> Path:
    """ADAPTER-merged, the folder that a merge is written to where none is named. The name is that
    of the folder itself, also where a link or `.` leads to it.
    """
    return adapter.folder.with_name(f"{adapter.folder.resolve().name}-merged")


def _holds_same_merge(folder: Path, record: Mapping[str, Any], *, prove: bool) -> bool:
    """Does a folder hold this very merge, proved where a proof is asked for?"""
    before = read_json_object(folder / MERGE_FILE, []) or {}
    names = ("adapter", "base", "settings", "dtype")
    # Fingerprints of the weights, not paths or dates: a copied folder is the same adapter.
    same = bool(before) and all(before.get(name) == record[name] for name in names)
    return same and bool(before.get("proof") or not prove)


def _notes_where_adapter_record_disagrees(judgement: Judgement) -> tuple[str, ...]:
    """What the notes of the rules say of an adapter whose own record disagrees with it."""
    return tuple(
        finding.message
        for finding in judgement.findings
        if finding.rule in RECORD_RULES and finding.severity == "info"
    )


class _MergeFailed(Exception):
    """Raised where the merged model is wrong, so that nothing is left of the folder."""


def _read_adapter_and_base(
    adapter: Path, base: str | PathLike[str] | None
) -> tuple[Checkpoint, Checkpoint, Judgement]:
    """Adapter and base, and what the rules say of them. Raises UsageError where they can't be merged."""
    checkpoint = read_checkpoint(adapter, base=base)
    # Each refusal here comes before a weight is loaded, with what to do instead.
    if checkpoint.kind != "adapter":
        raise UsageError(
            f"{adapter}: holds no adapter; `truetune merge` wants the folder of adapter_config.json"
        )
    if checkpoint.base is None:
        raise UsageError(
            f"{adapter}: its base {checkpoint.base_name or '(not named)'} is not on this machine; "
            "name its folder with --base"
        )
    # Unpickling runs code of the file.
    if not checkpoint.tensors and checkpoint.weights.pickled:
        raise UsageError(
            f"{adapter}: its weights are a pickle, which is not opened; save it again as"
            " safetensors"
        )
    _refuse_quantized(checkpoint.base)
    judgement = judge_weights_of_checkpoint(checkpoint)
    errors = [finding for finding in judgement.findings if finding.severity == "error"]
    if errors:
        lines = "".join(f"\n  {f.rule} ({f.code}): {f.message}; {f.remedy}" for f in errors)
        raise UsageError(f"{adapter}: can't be merged into {checkpoint.base.folder}:{lines}")
    return checkpoint, checkpoint.base, judgement


def _refuse_quantized(base: Checkpoint) -> None:
    """Raise UsageError for a quantized base: its steps are larger than most of what an adapter adds."""
    method = (base.config.get("quantization_config") or {}).get("quant_method")
    if base.config.get("quantization_config"):
        raise UsageError(
            f"{base.folder}: is quantized ({method or 'unknown method'}); a merge into it"
            " would round the adapter away. Name the folder of the unquantized model with --base,"
            " or serve the adapter unmerged"
        )


def _dtype_of_most_values(base: Checkpoint) -> str:
    """The number format of most of the base's values."""
    items: dict[str, int] = {}
    for tensor in base.tensors.values():
        items[tensor.dtype] = items.get(tensor.dtype, 0) + tensor.value_count
    # By the number of values and not of tensors: norms kept in float32 are many and small.
    dtype = max(items, key=items.__getitem__, default="F32")
    if dtype not in DTYPE_NAMES:
        raise UsageError(f"{base.folder}: is stored as {dtype}; name a format with --dtype")
    return DTYPE_NAMES[dtype]


@dataclass(frozen=True)
class _FileSources:
    """Where the files beside the weights come from: the adapter's folder, else the base's."""

    adapter: Checkpoint
    base: Checkpoint

    @property
    def tokenizer_folder(self) -> Path:
        """The folder that the tokenizer is copied from: the adapter's where it has one, since
        training may have added tokens or changed the template; else the base's.
        """
        return self.adapter.folder if self.adapter.has_file("tokenizer.json") else self.base.folder

    @property
    def adapter_generation_config(self) -> Mapping[str, Any] | None:
        """The adapter's generation config; None where the base's is used."""
        return self.adapter.generation_config or None

    def copy_tokenizer_and_generation_config_into(self, part: Path) -> tuple[str, ...]:
        """Copy tokenizer, template and generation_config into the folder; gives a note for each."""
        copied = copy_tokenizer_files(self.tokenizer_folder, part)
        notes = [f"tokenizer and template of {self.tokenizer_folder} ({len(copied)} files)"]
        for source in (self.adapter, self.base):
            if source.has_file("generation_config.json"):
                shutil.copyfile(
                    source.folder / "generation_config.json", part / "generation_config.json"
                )
                return (*notes, f"generation_config.json of {source.folder}")
        return tuple(notes)


def _judge_merge_with_adapter_warnings(model: Checkpoint, adapter: Judgement) -> Judgement:
    """What the rules say of the merged model, with the adapter's warnings and the rules that failed
    on it.
    """
    # Notes about an adapter are no concern of whoever uses the merged model.
    graver = tuple(finding for finding in adapter.findings if finding.severity != "info")
    lost = tuple(part for part in adapter.not_judged if part.asked)
    return Judgement.of([judge_weights_of_checkpoint(model), Judgement(graver, not_judged=lost)])


@dataclass(frozen=True)
class _MergeObservations:
    """What was observed of the model in memory: the base alone, with its adapter, and merged."""

    on: ModelObservation
    off: ModelObservation
    merged: ModelObservation


def _merge_and_save(
    adapter: Checkpoint,
    base: Checkpoint,
    proof_prompts: ProofPrompts | None,
    part: Path,
    dtype: str,
    device: str,
    shard: str,
) -> _MergeObservations | None:
    """Merge and save; record answers and logits at each step where there are prompts."""
    model = load_model_float32(base.folder, model_class(base), device)
    rows = adapter_vocabulary(adapter)
    if rows is not None and rows != model.get_input_embeddings().weight.shape[0]:
        # The adapter was trained on an enlarged embedding. Its rows come from the adapter, so the
        # costly mean over all others would be overwritten at once.
        model.resize_token_embeddings(rows, mean_resizing=False)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            # peft warns that tied weights are merged apart; the comparison of all values with base
            # and adapter below judges that, with figures.
            "ignore",
            message=".*tied.*|.*tie_word_embeddings.*|.*embedding layer.*",
        )
        tuned = PeftModel.from_pretrained(
            # An adapter that was saved in 16 bits is raised to float32, so that the product of its
            # factors is rounded once.
            model,
            str(adapter.folder),
            autocast_adapter_dtype=True,
        ).eval()
        on = off = merged_look = None
        if proof_prompts:
            on = observe_greedy_answers_and_logits(tuned, proof_prompts)
            with tuned.disable_adapter():
                off = observe_greedy_answers_and_logits(tuned, proof_prompts, on)
        if not hasattr(tuned, "merge_and_unload"):
            raise UsageError(
                f"{adapter.folder}: an adapter of type {adapter.adapter_config.get('peft_type')} can't"
                " be merged"
            )
        # safe_merge refuses nan and infinities instead of writing them.
        merged = tuned.merge_and_unload(safe_merge=True)
    if proof_prompts:
        merged_look = observe_greedy_answers_and_logits(merged, proof_prompts, on)
    # After the sum, so that base and adapter are rounded together once. Rounding the base first
    # would lose small updates below its step.
    merged.to(getattr(torch, dtype)).save_pretrained(str(part), max_shard_size=shard)
    del model, tuned, merged
    # peft's modules hold each other in circles; without this, the merged model is still in memory
    # while the saved one is loaded.
    gc.collect()
    return _MergeObservations(on, off, merged_look) if on and off and merged_look else None


def _prove_merge(
    observations: _MergeObservations,
    proof_prompts: ProofPrompts,
    part: Path,
    under: Checkpoint,
    device: str,
    say: Say,
) -> Proof:
    """Compare the merged model in memory, and as read back from the disk, with the adapter on its base."""
    say("verifying the reloaded model")
    model = load_model_float32(part, model_class(under), device)
    # The reloaded model follows the answers of the adapter, token by token: once two answers part,
    # their logits have nothing to do with each other.
    again = observe_greedy_answers_and_logits(model, proof_prompts, observations.on)
    return make_proof_of_form_comparisons(
        observations.on,
        observations.off,
        [
            compare_form_with_adapter_on_base(
                "merged, float32",
                observations.on,
                observations.off,
                observations.merged,
                prompts=proof_prompts,
            ),
            compare_form_with_adapter_on_base(
                "saved and reloaded",
                observations.on,
                observations.off,
                again,
                prompts=proof_prompts,
                facts=read_template_and_stop_facts(part),
            ),
        ],
    )


def _facts_of_merge_besides_inputs(merged_model: Merged) -> dict[str, Any]:
    """What merge.json says besides the inputs."""
    kept = merged_model.manifest.merged
    return {
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "peft": peft.__version__,
        },
        "paths": {"adapter": str(merged_model.adapter), "base": str(merged_model.base)},
        "kept": kept._asdict() if kept else None,
        "tensors": {t.name: t.merged._asdict() for t in merged_model.manifest.tensors if t.merged},
        "proof": asdict(merged_model.proof) if merged_model.proof else None,
        "findings": [f"{f.severity} {f.code} {f.rule}: {f.message}" for f in merged_model.findings],
        "examined": [
            f"{part.code} {part.rule}: {part.figure}" for part in merged_model.judged.examined
        ],
        "not_judged": [str(part) for part in merged_model.not_judged],
    }
