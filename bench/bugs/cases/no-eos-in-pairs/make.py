import json
from pathlib import Path

from bench.bugs.inputs.rows import questions, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    eos = json.loads((tokenizer / "tokenizer_config.json").read_text(encoding="utf-8"))["eos_token"]
    end = "" if broken else eos
    rows = [
        {"prompt": f"Q: {asked}\nA:", "completion": f" {answer}{end}"}
        for asked, answer in questions(40)
    ]
    write(folder / "train.jsonl", rows)
