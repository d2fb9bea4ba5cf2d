from pathlib import Path

from bench.starts.material import write_lines
from bench.starts.tickets import Desk


def make(folder: Path) -> None:
    """The rows that the script trains on."""
    write_lines(folder / "train.jsonl", Desk(9).chats(240))
