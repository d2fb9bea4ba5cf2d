"""Streams of one's own that every worker of a DataLoader reads whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """\
import argparse
import random
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=4)
args = parser.parse_args()
"""
ROWS = """\
class Rows(IterableDataset):
    def __init__(self, path):
        self.path = path
    def __iter__(self):
{body}
rows = Rows("rows.jsonl")
"""
ALL_LINES = "        for line in open(self.path):\n            yield line"
BY_WORKER = """\
        info = get_worker_info()
        for number, line in enumerate(open(self.path)):
            if info is None or number % info.num_workers == info.id:
                yield line"""
AT_RANDOM = """\
        lines = open(self.path).readlines()
        while True:
            yield random.choice(lines)"""


IN_A_FUNCTION = """\
def shared(lines):
    info = get_worker_info()
    for number, line in enumerate(lines):
        if info is None or number % info.num_workers == info.id:
            yield line
"""
FROM_FUNCTION = "        yield from shared(open(self.path))"
OF_BASE = """\
class Shared(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for number, line in enumerate(self.lines()):
            if info is None or number % info.num_workers == info.id:
                yield line
class Rows(Shared):
    def lines(self):
        return open("rows.jsonl")
rows = Rows()
"""
IN_PACKS = """\
from datasets import load_dataset
class Packs(IterableDataset):
    def __init__(self, rows):
        self.rows = rows
    def __iter__(self):
        for row in self.rows:
            yield row["text"][:1024]
rows = Packs(load_dataset("allenai/c4", "en", split="train"{streaming}))
"""
WITHOUT_END = """\
        lines = open(self.path).readlines()
        while 1:
            random.shuffle(lines)
            yield from lines"""


def _is_found(folder: Path, *parts: str) -> bool:
    path = folder / "train.py"
    path.write_text(HEAD + "\n".join(parts), encoding="utf-8")
    found = lint([path], select=["stream-read-whole-by-every-worker"]).findings
    return any(one.rule == "stream-read-whole-by-every-worker" for one in found)


@pytest.mark.parametrize(
    "loader",
    [
        "loader = DataLoader(rows, batch_size=4, num_workers=8)",
        "loader = DataLoader(rows, num_workers=args.workers)",
        "WORKERS = 2\nloader = DataLoader(dataset=rows, num_workers=WORKERS)",
        "def make(data):\n    return DataLoader(data, num_workers=4)\nloader = make(rows)",
    ],
)
def test_a_stream_that_asks_for_no_worker(loader: str, tmp_path: Path) -> None:
    assert _is_found(tmp_path, ROWS.format(body=ALL_LINES), loader)


def test_a_class_derived_from_another(tmp_path: Path) -> None:
    derived = "class Short(Rows):\n    limit = 512\nrows = Short('rows.jsonl')"
    loader = "loader = DataLoader(rows, num_workers=2)"
    assert _is_found(tmp_path, ROWS.format(body=ALL_LINES), derived, loader)


@pytest.mark.parametrize(
    ("body", "loader"),
    [
        (ALL_LINES, "loader = DataLoader(rows, batch_size=4)"),
        (ALL_LINES, "loader = DataLoader(rows, num_workers=1)"),
        (ALL_LINES, "loader = DataLoader(rows, num_workers=4, worker_init_fn=divide)"),
        (ALL_LINES, "loader = DataLoader(list(rows), num_workers=4)"),
        (BY_WORKER, "loader = DataLoader(rows, num_workers=8)"),
        (AT_RANDOM, "loader = DataLoader(rows, num_workers=8)"),
    ],
)
def test_other_loaders_and_streams(body: str, loader: str, tmp_path: Path) -> None:
    assert not _is_found(tmp_path, ROWS.format(body=body), loader)


@pytest.mark.parametrize(
    "stream",
    [
        IN_A_FUNCTION + ROWS.format(body=FROM_FUNCTION),
        OF_BASE,
        IN_PACKS.format(streaming=", streaming=True"),
        ROWS.format(body=WITHOUT_END),
    ],
)
def test_rows_that_other_code_divides(stream: str, tmp_path: Path) -> None:
    assert not _is_found(tmp_path, stream, "loader = DataLoader(rows, num_workers=8)")


def test_a_function_that_is_not_called_divides_nothing(tmp_path: Path) -> None:
    stream = IN_A_FUNCTION + ROWS.format(body=ALL_LINES)
    assert _is_found(tmp_path, stream, "loader = DataLoader(rows, num_workers=8)")


def test_rows_in_memory_that_a_stream_packs(tmp_path: Path) -> None:
    stream = IN_PACKS.format(streaming="")
    assert _is_found(tmp_path, stream, "loader = DataLoader(rows, num_workers=8)")
