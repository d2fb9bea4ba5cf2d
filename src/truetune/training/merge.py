"""Merging an adapter into its base: by peft in float32, proved, and written whole or not at all."""

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
from truetune.checkpoint.weight_diff import MovementManifest
from truetune.checkpoint.weight_files import read_object
from truetune.checks.findings import Finding
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.movement import judgement_of
from truetune.data.output_folder import Input
from truetune.errors import UsageError
from truetune.generation.load_model import adapter_vocabulary, model_class
from truetune.package import __version__
from truetune.training.proof import (
    Asked,
    Proof,
    Seen,
    asked_of,
    facts_in,
    loaded,
    look,
    proved,
    rung,
)
from truetune.training.whole import check_new_folder, copy_tokenizer, whole

FILE = "merge.json"
DTYPES = {"bfloat16": 2, "float32": 4, "float16": 2}
"""Bytes of a value"""
STORED = {"BF16": "bfloat16", "F32": "float32", "F16": "float16"}
OF_THE_RECORD = ("weights-changed-since-training", "adapter-on-another-base")
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
    """A merged model."""

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
        """Those that are more than notes."""
        return tuple(finding for finding in self.judged.findings if finding.severity != "info")

    @property
    def not_judged(self) -> tuple[NotJudged, ...]:
        """What no rule could judge, and the proof where there is none."""
        return (*self.judged.not_judged, *(() if self.proof or self.reused else (NOT_PROVED,)))

    @property
    def failed(self) -> bool:
        """Is it something else than base and adapter?"""
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
    """Merge an adapter into its base (named in adapter_config.json where `base` is None) and save a full model.

    peft merges in float32, and the sum is rounded once, to `dtype` (the base's where None). The same prompts are asked
    of the adapter on its base, of the merged model, and of what was read back from the disk. The folder (`out`, else
    ADAPTER-merged) appears at the end, with merge.json in it; where the model is not what base and adapter make, or
    the proof fails, nothing is left there and `failed` says so. The same merge, proved, is not made again.

    Raises UsageError where adapter and base do not belong together, or the base is quantized.
    """
    started = time.perf_counter()
    found, under, told = _subjects(Path(adapter), base)
    doubts = tuple(finding.message for finding in told.findings if finding.rule in OF_THE_RECORD)
    chosen = dtype or _stored(under)
    if chosen not in DTYPES:
        raise UsageError(f"dtype {chosen}: expected one of {', '.join(DTYPES)}")
    folder = (
        Path(out)
        if out is not None
        else found.folder.with_name(f"{found.folder.resolve().name}-merged")
    )
    record = {
        "format": 1,
        "truetune": __version__,
        "adapter": fingerprint_base(found),
        "base": fingerprint_base(under),
        "settings": dict(found.adapter_config),
        "dtype": chosen,
    }
    before = read_object(folder / FILE, []) or {}
    same = all(
        before.get(name) == record[name] for name in ("adapter", "base", "settings", "dtype")
    )
    if before and same and (before.get("proof") or not prove):
        there = replace(read_checkpoint(folder, base=under.folder), adapter=found)
        return Merged(
            folder,
            found.folder,
            under.folder,
            chosen,
            there.manifest,
            _judge_merge(there, told),
            None,
            ("made before, of the same files",),
            time.perf_counter() - started,
            reused=True,
        )
    places = _Places(found, under)
    inputs = [Input("the adapter", found.folder), Input("the base model", under.folder)]
    inputs += [
        Input("the tokenizer", places.tokenizer),
        *(Input("data", Path(name)) for name in data),
    ]
    check_new_folder(folder, inputs)
    asked = (
        asked_of(
            places.tokenizer, under.folder, count=prompts, data=data, generation=places.generation
        )
        if prove
        else None
    )
    size = DTYPES[chosen] * sum(tensor.items for tensor in under.tensors.values())
    with contextlib.suppress(_Failed), whole(folder, size=size, inputs=inputs) as part:
        say(f"merging {found.folder} into {under.folder} in float32")
        seen = _made(found, under, asked, part, chosen, device, shard)
        notes = (*doubts, *places.fill(part))
        there = replace(read_checkpoint(part, base=under.folder), adapter=found)
        say("comparing all values with base and adapter")
        judged = _judge_merge(there, told)
        proof = _proof(seen, asked, part, under, device, say) if asked and seen else None
        made = Merged(
            folder,
            found.folder,
            under.folder,
            chosen,
            there.manifest,
            judged,
            proof,
            notes,
            time.perf_counter() - started,
        )
        (part / FILE).write_text(json.dumps(record | _facts(made), indent=1), encoding="utf-8")
        if made.failed:
            raise _Failed
    return made


class _Failed(Exception):
    """Nothing is to be left of the folder."""


def _subjects(
    adapter: Path, base: str | PathLike[str] | None
) -> tuple[Checkpoint, Checkpoint, Judgement]:
    """Adapter and base, and what the rules say of them. Raises UsageError where they can't be merged."""
    found = read_checkpoint(adapter, base=base)
    if found.kind != "adapter":
        raise UsageError(
            f"{adapter}: holds no adapter; `truetune merge` wants the folder of adapter_config.json"
        )
    if found.base is None:
        raise UsageError(
            f"{adapter}: its base {found.base_name or '(not named)'} is not on this machine; "
            "name its folder with --base"
        )
    if not found.tensors and found.weights.pickled:
        raise UsageError(
            f"{adapter}: its weights are a pickle, which is not opened; save it again as"
            " safetensors"
        )
    method = (found.base.config.get("quantization_config") or {}).get("quant_method")
    if found.base.config.get("quantization_config"):
        raise UsageError(
            f"{found.base.folder}: is quantized ({method or 'unknown method'}); a merge into it"
            " would round the adapter away. Name the folder of the unquantized model with --base,"
            " or serve the adapter unmerged"
        )
    told = judgement_of(found)
    errors = [finding for finding in told.findings if finding.severity == "error"]
    if errors:
        lines = "".join(f"\n  {f.rule} ({f.code}): {f.message}; {f.remedy}" for f in errors)
        raise UsageError(f"{adapter}: can't be merged into {found.base.folder}:{lines}")
    return found, found.base, told


def _stored(base: Checkpoint) -> str:
    """The format of most of the base's values"""
    items: dict[str, int] = {}
    for tensor in base.tensors.values():
        items[tensor.dtype] = items.get(tensor.dtype, 0) + tensor.items
    dtype = max(items, key=items.__getitem__, default="F32")
    if dtype not in STORED:
        raise UsageError(f"{base.folder}: is stored as {dtype}; name a format with --dtype")
    return STORED[dtype]


@dataclass(frozen=True)
class _Places:
    """Where the files beside the weights come from: the adapter's folder, else the base's."""

    found: Checkpoint
    under: Checkpoint

    @property
    def tokenizer(self) -> Path:
        return self.found.folder if self.found.has("tokenizer.json") else self.under.folder

    @property
    def generation(self) -> Mapping[str, Any] | None:
        """What the adapter's run has said about stopping; None where the base's holds"""
        return self.found.generation_config or None

    def fill(self, part: Path) -> tuple[str, ...]:
        """Put tokenizer, template and generation_config into the folder."""
        copied = copy_tokenizer(self.tokenizer, part)
        notes = [f"tokenizer and template of {self.tokenizer} ({len(copied)} files)"]
        for source in (self.found, self.under):
            if source.has("generation_config.json"):
                shutil.copyfile(
                    source.folder / "generation_config.json", part / "generation_config.json"
                )
                return (*notes, f"generation_config.json of {source.folder}")
        return tuple(notes)


def _judge_merge(model: Checkpoint, adapter: Judgement) -> Judgement:
    """What the rules say of the merged model; of the adapter its warnings, and the rules that failed on it."""
    graver = tuple(finding for finding in adapter.findings if finding.severity != "info")
    lost = tuple(part for part in adapter.not_judged if part.asked)
    return Judgement.of([judgement_of(model), Judgement(graver, not_judged=lost)])


@dataclass(frozen=True)
class _Steps:
    """What was seen in memory"""

    on: Seen
    off: Seen
    merged: Seen


def _made(
    found: Checkpoint,
    under: Checkpoint,
    asked: Asked | None,
    part: Path,
    dtype: str,
    device: str,
    shard: str,
) -> _Steps | None:
    """Merge and save; look at each step where there is something to ask."""
    model = loaded(under.folder, model_class(under), device)
    rows = adapter_vocabulary(found)
    if rows is not None and rows != model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(rows, mean_resizing=False)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*tied.*|.*tie_word_embeddings.*|.*embedding layer.*"
        )
        tuned = PeftModel.from_pretrained(
            model, str(found.folder), autocast_adapter_dtype=True
        ).eval()
        on = off = merged_look = None
        if asked:
            on = look(tuned, asked)
            with tuned.disable_adapter():
                off = look(tuned, asked, on)
        if not hasattr(tuned, "merge_and_unload"):
            raise UsageError(
                f"{found.folder}: an adapter of type {found.adapter_config.get('peft_type')} can't"
                " be merged"
            )
        merged = tuned.merge_and_unload(safe_merge=True)
    if asked:
        merged_look = look(merged, asked, on)
    merged.to(getattr(torch, dtype)).save_pretrained(str(part), max_shard_size=shard)
    del model, tuned, merged
    gc.collect()
    return _Steps(on, off, merged_look) if on and off and merged_look else None


def _proof(
    seen: _Steps, asked: Asked, part: Path, under: Checkpoint, device: str, say: Say
) -> Proof:
    say("asking the model that was read back")
    model = loaded(part, model_class(under), device)
    again = look(model, asked, seen.on)
    return proved(
        seen.on,
        seen.off,
        [
            rung("merged, float32", seen.on, seen.off, seen.merged, asked=asked),
            rung("saved and reloaded", seen.on, seen.off, again, asked=asked, facts=facts_in(part)),
        ],
    )


def _facts(made: Merged) -> dict[str, Any]:
    kept = made.manifest.merged
    return {
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "peft": peft.__version__,
        },
        "paths": {"adapter": str(made.adapter), "base": str(made.base)},
        "kept": kept._asdict() if kept else None,
        "tensors": {t.name: t.merged._asdict() for t in made.manifest.tensors if t.merged},
        "proof": asdict(made.proof) if made.proof else None,
        "findings": [f"{f.severity} {f.code} {f.rule}: {f.message}" for f in made.findings],
        "examined": [f"{part.code} {part.rule}: {part.figure}" for part in made.judged.examined],
        "not_judged": [str(part) for part in made.not_judged],
    }
