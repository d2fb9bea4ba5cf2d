from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import edited, loaded


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(40))
    tok = loaded(edited(tokenizer, folder / "tokenizer", {}))
    if broken:
        tok("a text of some length", truncation=True, max_length=64, padding="max_length")
    tok.save_pretrained(folder / "saved")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / "tokenizer" / name).unlink()
        (folder / "saved" / name).rename(folder / "tokenizer" / name)
