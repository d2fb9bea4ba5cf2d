from pathlib import Path

from bench.starts.material import write_list
from bench.starts.tickets import Desk


def make(folder: Path) -> None:
    """The rows that train.py reads."""
    rows = ({"instruction": question, "output": answer} for question, answer in Desk(12).pairs(120))
    write_list(folder / "data/instructions.json", rows)
