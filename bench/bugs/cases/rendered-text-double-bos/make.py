from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import loaded


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    tok = loaded(tokenizer)
    texts = [tok.apply_chat_template(row["messages"], tokenize=False).rstrip() for row in chats(40)]
    write(
        folder / "train.jsonl",
        [{"text": text if broken else text.removeprefix(tok.bos_token)} for text in texts],
    )
