from pathlib import Path

from bench.starts.material import write_lines
from bench.starts.tickets import Desk


def make(folder: Path) -> None:
    """The script's rows, in the form of ShareGPT."""
    turns = ((("human", question), ("gpt", answer)) for question, answer in Desk(7).pairs(60))
    rows = (
        {"conversations": [{"from": role, "value": text} for role, text in both]} for both in turns
    )
    write_lines(folder / "convs.jsonl", rows)
