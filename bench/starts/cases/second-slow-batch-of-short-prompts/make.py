from pathlib import Path

from bench.starts.material import instructions, write_lines


def make(folder: Path) -> None:
    """200 questions of a line each."""
    rows = (
        {"id": number, "question": row["instruction"]}
        for number, row in enumerate(instructions()[:200])
    )
    write_lines(folder / "questions.jsonl", rows)
