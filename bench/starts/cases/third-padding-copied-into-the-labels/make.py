from pathlib import Path

from bench.starts.material import write_lines
from bench.starts.tickets import Desk


def make(folder: Path) -> None:
    """The rows that the script trains on."""
    rows = ({"question": question, "answer": answer} for question, answer in Desk(14).pairs(280))
    write_lines(folder / "qa_train.jsonl", rows)
