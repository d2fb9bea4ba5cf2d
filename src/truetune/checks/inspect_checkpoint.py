"""Looking at a saved model or adapter: its facts, and what every rule for checkpoints says."""

from __future__ import annotations

import os
import time
from collections import Counter

from truetune.checkpoint.adapter_tensor_names import group_low_rank_tensors
from truetune.checkpoint.load_checkpoint import Checkpoint, read_checkpoint
from truetune.checkpoint.scan_values import MAX_SCANNED_BYTES
from truetune.checks.reports import Report, Subject
from truetune.checks.rule import CheckpointRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.spec.run_spec import RunSpec


def checkpoint_report(
    folder: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
    spec: RunSpec | None = None,
    budget: int = MAX_SCANNED_BYTES,
) -> Report:
    """Look at the files of a saved model or adapter, and compare them with those of `base`.

    `base` is a folder or a model of the local hub cache; else adapter_config.json names it. `budget` is the bytes of
    weights that are read for their values; beyond them, tensors are sampled. Raises UsageError where there is no
    checkpoint or no such base.
    """
    started = time.perf_counter()
    spec = spec or RunSpec()
    found = read_checkpoint(folder, base=base, budget=budget)
    judged = run_rules(found, choose_rules(spec, CheckpointRule))
    subject = Subject(found.kind, str(found.folder), tuple(checkpoint_facts(found).items()))
    return Report(
        spec=spec,
        subjects=(subject,),
        findings=judged.findings,
        examined=judged.examined,
        not_judged=judged.not_judged,
        seconds=time.perf_counter() - started,
    )


def checkpoint_facts(found: Checkpoint) -> dict[str, str]:
    """Short facts: what there is, what it was compared with, and what was read."""
    if not found.has_weights:
        return {"weights": "not in this folder: its JSON files are judged, and no tensor"}
    dtypes: Counter[str] = Counter()
    for tensor in found.tensors.values():
        dtypes[tensor.dtype] += tensor.items
    files = len(found.weights.files)
    known = {
        "tensors": (
            f"{len(found.tensors):,} in {files:,} file{'s' * (files != 1)}, {found.size:,} bytes"
        ),
        "numbers": ", ".join(f"{count:,} {dtype}" for dtype, count in dtypes.most_common()),
    }
    if found.kind == "adapter":
        scale = ", ".join(
            f"{k} {found.adapter_config[k]}"
            for k in ("r", "lora_alpha")
            if k in found.adapter_config
        )
        known["adapter"] = f"{found.adapter_config.get('peft_type', 'unknown')} {scale}".strip()
        known["adapted modules"] = f"{len(group_low_rank_tensors(found.tensors)):,}"
    quantized = found.config.get("quantization_config")
    if isinstance(quantized, dict):
        known["quantized by"] = str(quantized.get("quant_method", "unknown"))
    known["compared with"] = _compared_with(found)
    known["values looked at"] = (
        "all" if found.sampled >= 1 else f"{found.sampled:.0%}, spread evenly"
    )
    if found.weights.pickled:
        known["not opened"] = ", ".join(
            f"{name} ({size:,} bytes)" for name, size in found.weights.pickled.items()
        )
    return known


def _compared_with(found: Checkpoint) -> str:
    if found.base is not None:
        return str(found.base.folder)
    return (
        f"nothing: {found.base_name} is not on this machine"
        if found.base_name
        else "nothing: no base is named"
    )
