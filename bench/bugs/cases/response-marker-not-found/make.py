import json
from pathlib import Path

from bench.bugs.inputs.rows import questions, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = [
        {"text": f"### Question: {asked}\n### Answer: {answer}"} for asked, answer in questions(40)
    ]
    write(folder / "train.jsonl", rows)
    settings = {
        "max_length": 2048,
        "append_eos": True,
        "mask_by": "response-marker",
        "response_marker": "\n### Answer: " if broken else "### Answer:",
    }
    (folder / "truetune.yaml").write_text(json.dumps(settings), encoding="utf-8")
