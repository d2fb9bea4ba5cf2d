"""Memory of the GPU that a log shows to grow from step to step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from truetune.checks.diagnose_log import diagnose
from truetune.logs.gpu_memory_curve import find_memory_curve
from truetune.logs.run_log import Curve

RULE = "memory-grows-with-each-step"
GIB = 1 << 30
LIGHTNING = "DeviceStatsMonitor.on_train_batch_end/allocated_bytes.all.current"


def found(folder: Path, column: str, values: list[float]) -> dict[str, str]:
    """Severity by rule of a log with a column beside its loss."""
    lines = [f"step,train_loss,{column}"]
    lines += [f"{10 * n},{2 - n / 40:.4f},{value}" for n, value in enumerate(values)]
    file = folder / "metrics.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {one.rule: one.severity for one in diagnose(file).findings}


@pytest.mark.parametrize(
    ("column", "scale"),
    [
        (LIGHTNING, GIB),
        ("gpu_mem_allocated_mb", 1024),
        ("cuda_memory_gb", 1),
        ("mem", 1),
        ("memory(GiB)", 1),
        ("vram_used_mib", 1024),
    ],
)
def test_memory_that_grows(column: str, scale: float, tmp_path: Path) -> None:
    assert found(tmp_path, column, [(8 + 1.8 * n) * scale for n in range(9)])[RULE] == "warning"


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (LIGHTNING, [8.0 * GIB] * 9),
        (LIGHTNING, [(5.0 if n == 0 else 14.0) * GIB for n in range(9)]),
        (LIGHTNING, [(8 + 0.05 * n) * GIB for n in range(9)]),
        ("cpu_memory_gb", [8 + 1.8 * n for n in range(9)]),
        ("gpu_memory_percent", [8 + 8.0 * n for n in range(9)]),
        ("gpu_memory_free_gb", [8 + 1.8 * n for n in range(9)]),
    ],
)
def test_memory_that_does_not(column: str, values: list[float], tmp_path: Path) -> None:
    assert RULE not in found(tmp_path, column, values)


def test_a_peak_is_only_noted(tmp_path: Path) -> None:
    """Rows that come sorted by their length raise it as well."""
    values = [8 + 1.8 * n for n in range(9)]
    assert found(tmp_path, "peak_memory_gb", values)[RULE] == "info"


def test_what_tensors_hold_goes_before_what_is_reserved() -> None:
    steps = np.arange(9.0)
    curves = {
        "reserved_bytes.all.current": Curve(steps, steps * GIB),
        "allocated_bytes.all.current": Curve(steps, 2 * steps * GIB),
    }
    assert find_memory_curve(curves).curve.value[1] == 2
