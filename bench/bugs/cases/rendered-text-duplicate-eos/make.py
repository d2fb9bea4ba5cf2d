import json
from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import loaded


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    tok = loaded(tokenizer)
    texts = [tok.apply_chat_template(row["messages"], tokenize=False) for row in chats(40)]
    write(folder / "train.jsonl", [{"text": text} for text in texts])
    settings = {"max_length": 2048, "append_eos": broken}
    (folder / "truetune.yaml").write_text(json.dumps(settings), encoding="utf-8")
