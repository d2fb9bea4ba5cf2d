from pathlib import Path

from bench.starts.material import write_lines
from bench.starts.tickets import Desk


def make(folder: Path) -> None:
    """The rows that the loop reads."""
    write_lines(folder / "chats.jsonl", Desk(6).chats(90))
