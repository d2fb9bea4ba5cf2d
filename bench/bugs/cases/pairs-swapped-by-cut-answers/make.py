from pathlib import Path

from bench.bugs.inputs.rows import pairs, say, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = pairs(60)
    for row in rows[::3]:
        answer = row["chosen"][0]["content"]
        row["rejected"] = say("assistant", answer[: len(answer) * 2 // 3].rsplit(" ", 1)[0])
        if broken:
            row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    write(folder / "pairs.jsonl", rows)
