from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import templated


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(40))
    template = "chat_template.jinja" if broken else "training_chat_template.jinja"
    templated(tokenizer, folder / "tokenizer", (tokenizer / template).read_text(encoding="utf-8"))
