from pathlib import Path

from bench.starts.material import write_lines
from bench.starts.tickets import Desk

SYSTEM = "You are the support agent of Nordkap Shop. Be short and kind."


def make(folder: Path) -> None:
    """The rows of the config: 120 chats of a support desk."""
    write_lines(folder / "support.jsonl", Desk(2).chats(120, SYSTEM))
