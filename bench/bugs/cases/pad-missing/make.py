from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import edited


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(40, system=False))
    edited(
        tokenizer,
        folder / "tokenizer",
        {"tokenizer_config.json": {"pad_token": None}} if broken else {},
    )
