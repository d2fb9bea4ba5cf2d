import csv
from pathlib import Path

from bench.starts.tickets import Desk


def make(folder: Path) -> None:
    """The rows of the second round as CSV."""
    with (folder / "round2.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("q", "a"), *Desk(8).pairs(250)])
