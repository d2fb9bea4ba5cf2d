from pathlib import Path

from bench.starts.material import chats, instructions, write_lines


def make(folder: Path) -> None:
    """The rows of the run."""
    write_lines(folder / "data/train.jsonl", chats(instructions()[:300]))
