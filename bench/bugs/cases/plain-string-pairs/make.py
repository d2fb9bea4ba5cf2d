from pathlib import Path

from bench.bugs.inputs.rows import questions, say, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = [{"prompt": asked, "completion": answer} for asked, answer in questions(40)]
    if not broken:
        rows = [
            {
                "prompt": say("user", row["prompt"]),
                "completion": say("assistant", row["completion"]),
            }
            for row in rows
        ]
    write(folder / "train.jsonl", rows)
