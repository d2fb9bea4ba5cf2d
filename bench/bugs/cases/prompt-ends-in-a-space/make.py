from pathlib import Path

from bench.bugs.inputs.rows import questions, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    space, before = (" ", "") if broken else ("", " ")
    write(
        folder / "train.jsonl",
        [
            {"prompt": f"Q: {asked}\nA:{space}", "completion": before + answer}
            for asked, answer in questions(40)
        ],
    )
