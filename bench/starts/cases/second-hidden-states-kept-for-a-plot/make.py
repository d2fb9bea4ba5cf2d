from pathlib import Path

from bench.starts.material import instructions, question, write_lines


def make(folder: Path) -> None:
    """The rows of the loop."""
    rows = (
        {
            "prompt": f"### Instruction:\n{question(row)}\n\n### Response:\n",
            "completion": row["output"],
        }
        for row in instructions()[:200]
    )
    write_lines(folder / "data/train.jsonl", rows)
