"""Reads what nvidia-smi printed, as the table, as `-L` or as `--query-gpu` CSV: each GPU's name,
memory and utilization.

Users keep it beside a run that is slow or out of memory. Each GPU is read with its name, memory and utilization; a file
may hold many readings of the same GPUs (`nvidia-smi -l 5 > gpu.txt`), of which the mean counts: a GPU that works a
quarter of the time shows 0 in most readings.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

TABLE_MARK = "NVIDIA-SMI"
NAME_ROW = re.compile(
    r"^\|\s{1,4}(?P<index>\d{1,3})\s{1,6}(?P<name>\S.{0,40}?)\s+(?:On|Off|N/A)\s*\|"
)
USE_ROW = re.compile(
    r"(?P<used>\d{1,7})MiB\s*/\s*(?P<total>\d{1,7})MiB\s*\|\s*(?:(?P<busy>\d{1,3})%|N/A)?"
)
PROCESS_ROW = re.compile(
    r"^\|\s{1,6}(?P<index>\d{1,3})\s{1,6}\S{1,6}\s{1,6}\S{1,6}\s{1,20}(?P<pid>\d{1,8})\s{1,8}[A-Z+]{1,5}\s{1,6}"
    r"(?P<name>\S[^|]{0,160}?)\s{1,60}(?P<used>\d{1,7})MiB\s{0,4}\|"
)
"""A process in the lower table"""
LIST_ROW = re.compile(r"^GPU (?P<index>\d{1,3}): (?P<name>[^(]{2,60}?) \(UUID: ")
SIZE = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)\s*(MiB|GiB)?")
MAX_LINES = 20_000
"""Lines that are read. Chosen by hand: it bounds the time. A table of eight GPUs has some forty
lines, so that these are about 500 readings; fewer may end while a run still loads"""
MAX_GPUS = 64
"""GPUs that are kept. Chosen by hand: it bounds the memory in a text that only looks like readings.
Machines have 8 or 16; with fewer kept than a machine has, the last would be left out"""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a GPU."""

    pid: int
    name: str
    """As it is printed, which may lack its begin"""
    used: float
    """Bytes, in the last reading"""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU, by the readings of a file."""

    index: int
    name: str
    line: int
    """1-based, of its first reading"""
    total: float | None = None
    """Bytes of memory"""
    used: float | None = None
    """Bytes, the largest of all readings"""
    busy: float | None = None
    """Utilization in percent, the mean of all readings since the first in which it works"""
    readings: int = 1
    samples: tuple[float, ...] = ()
    """Utilization in each reading, in order; empty where a reading lacks it"""
    processes: tuple[GpuProcess, ...] = ()


@dataclass(slots=True)
class _Readings:
    """What several readings say of one GPU."""

    name: str
    line: int
    totals: list[float]
    used: list[float]
    busy: list[float]


def read_nvidia_smi(text: str) -> tuple[GpuReading, ...]:
    """Each GPU in what nvidia-smi printed, over all readings; none if the text is something else."""
    lines = text.splitlines()[:MAX_LINES]
    gpus = _readings_by_gpu(lines)
    if not gpus:
        return ()
    processes = _processes_by_gpu_and_pid(lines)
    return tuple(
        _summarize_readings(index, readings, processes.get(index, {}).values())
        for index, readings in sorted(gpus.items())
    )


def _readings_by_gpu(lines: Sequence[str]) -> dict[int, _Readings]:
    """GPU index -> its readings, by the first reader that knows the form of the text; empty where
    none does.
    """
    for reader in (_readings_of_table, _gpu_names_of_nvidia_smi_list, _readings_of_csv):
        gpus = _collect_readings(reader(lines))
        if gpus:
            return gpus
    return {}


def _collect_readings(rows: Iterable[_Row]) -> dict[int, _Readings]:
    """GPU index -> its readings, for no more than MAX_GPUS GPUs."""
    gpus: dict[int, _Readings] = {}
    for index, name, line, total, used, busy in rows:
        if index not in gpus and len(gpus) >= MAX_GPUS:
            continue
        one = gpus.setdefault(index, _Readings(name, line, [], [], []))
        one.totals += [total] if total is not None else []
        one.used += [used] if used is not None else []
        one.busy += [busy] if busy is not None else []
    return gpus


def _summarize_readings(
    index: int, readings: _Readings, processes: Iterable[GpuProcess]
) -> GpuReading:
    """One GPU, by all of its readings."""
    used, busy = readings.used, readings.busy
    return GpuReading(
        index,
        readings.name,
        readings.line,
        max(readings.totals, default=None),
        max(used, default=None),
        _mean_utilization_since_first_work(busy) if busy else None,
        max(len(used), len(busy), 1),
        tuple(busy) if len(busy) >= len(used) else (),
        tuple(processes),
    )


def _processes_by_gpu_and_pid(lines: Sequence[str]) -> dict[int, dict[int, GpuProcess]]:
    """The processes in the lower table: GPU index -> process id -> process."""
    processes: dict[int, dict[int, GpuProcess]] = {}
    for line in lines:
        row = PROCESS_ROW.match(line)
        if row is not None and len(processes) <= MAX_GPUS:
            process = GpuProcess(int(row["pid"]), row["name"], float(row["used"]) * MIB)
            processes.setdefault(int(row["index"]), {})[process.pid] = process
    return processes


def _mean_utilization_since_first_work(busy: Sequence[float]) -> float:
    """The mean utilization without the zero readings before the first work, in which the model is
    loaded.
    """
    first = next((place for place, value in enumerate(busy) if value > 0), 0)
    return fmean(busy[first:])


_Row = tuple[int, str, int, float | None, float | None, float | None]


def _readings_of_table(lines: Sequence[str]) -> Iterator[_Row]:
    """The readings of each GPU in the usual table, in which a GPU has two rows."""
    if not any(TABLE_MARK in line for line in lines):
        return
    head: tuple[int, str, int] | None = None
    for number, line in enumerate(lines, 1):
        named = NAME_ROW.match(line)
        if named is not None:
            head = (int(named["index"]), named["name"], number)
            continue
        use = USE_ROW.search(line)
        if use is not None and head is not None:
            busy = float(use["busy"]) if use["busy"] else None
            yield (*head, float(use["total"]) * MIB, float(use["used"]) * MIB, busy)
            head = None


def _gpu_names_of_nvidia_smi_list(lines: Sequence[str]) -> Iterator[_Row]:
    """The GPUs of `nvidia-smi -L`, by name alone: `GPU 0: NVIDIA A100-SXM4-80GB (UUID:
    GPU-331578fd)`.
    """
    for number, line in enumerate(lines, 1):
        match = LIST_ROW.match(line)
        if match is not None:
            yield (int(match["index"]), match["name"], number, None, None, None)


def _readings_of_csv(lines: Sequence[str]) -> Iterator[_Row]:
    """The readings of `nvidia-smi --query-gpu ... --format=csv`: a header `index, name,
    utilization.gpu [%], ...` and its rows.
    """
    columns: dict[str, int] = {}
    seen: dict[str, int] = {}
    for number, fields in enumerate(csv.reader(lines), 1):
        cells = [cell.strip() for cell in fields]
        heads = [cell.partition(" [")[0].lower() for cell in cells]
        if "memory.used" in heads or "utilization.gpu" in heads:
            columns = {name: place for place, name in enumerate(heads)}
            continue
        if not columns or len(cells) < len(columns):
            continue
        index = _gpu_index_of_csv_row(cells, columns, seen)
        name = cells[columns["name"]] if "name" in columns else ""
        total, used = (
            _bytes_in_column(cells, columns, f"memory.{one}") for one in ("total", "used")
        )
        busy = _number_in_column(cells, columns, "utilization.gpu")
        yield (index, name, number, total, used, busy)


def _gpu_index_of_csv_row(
    cells: Sequence[str], columns: dict[str, int], seen: dict[str, int]
) -> int:
    """The index of a row's GPU, by its index, UUID or bus; 0 if the file names none."""
    index = _number_in_column(cells, columns, "index")
    if index is not None:
        return int(index)
    for name in ("uuid", "pci.bus_id", "gpu_uuid", "gpu_bus_id"):
        if name in columns:
            return seen.setdefault(cells[columns[name]], len(seen))
    return 0


def _number_in_column(cells: Sequence[str], columns: dict[str, int], name: str) -> float | None:
    """The number in a column of a row; None if there is none."""
    match = SIZE.match(cells[columns[name]]) if name in columns else None
    return float(match[1]) if match is not None else None


def _bytes_in_column(cells: Sequence[str], columns: dict[str, int], name: str) -> float | None:
    """The memory size in a column of a row, in bytes; None if there is none."""
    match = SIZE.match(cells[columns[name]]) if name in columns else None
    if match is None:
        return None
    return float(match[1]) * MIB * (1024 if match[2] == "GiB" else 1)
