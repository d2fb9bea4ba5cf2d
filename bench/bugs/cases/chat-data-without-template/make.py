from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import templated


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(40))
    own = (tokenizer / "chat_template.jinja").read_text(encoding="utf-8")
    templated(tokenizer, folder / "tokenizer", None if broken else own)
