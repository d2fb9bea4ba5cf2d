from pathlib import Path

from bench.bugs.inputs.rows import questions, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    words = ("polite", "short", "warm", "brief")
    rows = [
        {"instruction": asked, "hint": f"be {words[n % 4]}", "output": answer}
        for n, (asked, answer) in enumerate(questions(60))
    ]
    write(
        folder / "train.jsonl",
        rows if broken else [{k: v for k, v in row.items() if k != "hint"} for row in rows],
    )
    text = "max_length: 2048\nformat: alpaca\n"
    (folder / "truetune.yaml").write_text(
        text + ("map: {answer: hint}\n" if broken else ""), encoding="utf-8"
    )
