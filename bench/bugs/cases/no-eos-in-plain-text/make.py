import json
from pathlib import Path

from bench.bugs.inputs.rows import questions, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    eos = json.loads((tokenizer / "tokenizer_config.json").read_text(encoding="utf-8"))["eos_token"]
    end = "" if broken else eos
    write(
        folder / "train.jsonl",
        [{"text": f"Q: {asked}\nA: {answer}{end}"} for asked, answer in questions(40)],
    )
