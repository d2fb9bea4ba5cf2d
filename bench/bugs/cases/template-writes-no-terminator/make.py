from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import chatml, templated


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(40))
    templated(
        tokenizer,
        folder / "tokenizer",
        chatml(answer="{{ content + '\\n' }}") if broken else chatml(),
    )
