import json
from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import edited


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(40, system=False))
    eos = json.loads((tokenizer / "tokenizer_config.json").read_text(encoding="utf-8"))["eos_token"]
    edited(
        tokenizer,
        folder / "tokenizer",
        {"tokenizer_config.json": {"pad_token": eos}} if broken else {},
    )
