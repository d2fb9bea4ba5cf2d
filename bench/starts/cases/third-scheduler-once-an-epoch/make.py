from pathlib import Path

from bench.starts.material import write_lines
from bench.starts.tickets import Desk


def make(folder: Path) -> None:
    """The rows that the loop reads."""
    rows = ({"question": question, "answer": answer} for question, answer in Desk(5).pairs(200))
    write_lines(folder / "faq.jsonl", rows)
