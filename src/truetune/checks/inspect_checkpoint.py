"""Inspects a saved model or adapter: gathers its facts, and lets the rules on checkpoints judge it."""

from __future__ import annotations

import os
import time
from collections import Counter

from truetune.checkpoint.adapter_tensor_names import group_low_rank_tensors
from truetune.checkpoint.load_checkpoint import Checkpoint, read_checkpoint
from truetune.checkpoint.scan_tensors_for_nan_zeros_and_constants import MAX_SCANNED_BYTES
from truetune.checks.reports import Report, Subject
from truetune.checks.rule import CheckpointRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.settings.run_spec import RunSpec


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
    checkpoint = read_checkpoint(folder, base=base, budget=budget)
    judgement = run_rules(checkpoint, choose_rules(spec, CheckpointRule))
    subject = Subject(
        checkpoint.kind, str(checkpoint.folder), tuple(checkpoint_facts(checkpoint).items())
    )
    return Report(
        spec=spec,
        subjects=(subject,),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        seconds=time.perf_counter() - started,
    )


def checkpoint_facts(checkpoint: Checkpoint) -> dict[str, str]:
    """Short facts: what there is, what it was compared with, and what was read."""
    if not checkpoint.has_weights:
        return {"weights": "not in this folder: its JSON files are judged, and no tensor"}
    dtypes: Counter[str] = Counter()
    for tensor in checkpoint.tensors.values():
        dtypes[tensor.dtype] += tensor.value_count
    files = len(checkpoint.weights.files)
    known = {
        "tensors": (
            f"{len(checkpoint.tensors):,} in {files:,} file{'s' * (files != 1)},"
            f" {checkpoint.total_tensor_bytes:,} bytes"
        ),
        "numbers": ", ".join(f"{count:,} {dtype}" for dtype, count in dtypes.most_common()),
    }
    if checkpoint.kind == "adapter":
        scale = ", ".join(
            f"{k} {checkpoint.adapter_config[k]}"
            for k in ("r", "lora_alpha")
            if k in checkpoint.adapter_config
        )
        known["adapter"] = (
            f"{checkpoint.adapter_config.get('peft_type', 'unknown')} {scale}".strip()
        )
        known["adapted modules"] = f"{len(group_low_rank_tensors(checkpoint.tensors)):,}"
    quantized = checkpoint.config.get("quantization_config")
    if isinstance(quantized, dict):
        known["quantized by"] = str(quantized.get("quant_method", "unknown"))
    known["compared with"] = _describe_compared_base(checkpoint)
    known["values looked at"] = (
        "all"
        if checkpoint.scanned_share_of_bytes >= 1
        else f"{checkpoint.scanned_share_of_bytes:.0%}, spread evenly"
    )
    if checkpoint.weights.pickled:
        known["not opened"] = ", ".join(
            f"{name} ({size:,} bytes)" for name, size in checkpoint.weights.pickled.items()
        )
    return known


def _describe_compared_base(checkpoint: Checkpoint) -> str:
    """The base that it is compared with, or why there is none."""
    if checkpoint.base is not None:
        return str(checkpoint.base.folder)
    return (
        f"nothing: {checkpoint.base_name} is not on this machine"
        if checkpoint.base_name
        else "nothing: no base is named"
    )
