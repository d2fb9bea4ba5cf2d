import json
from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import edited, loaded


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = chats(40)
    for row in rows:
        row["messages"][-1]["content"] = "<note> " + row["messages"][-1]["content"]
    write(folder / "train.jsonl", rows)
    tok = loaded(edited(tokenizer, folder / "tokenizer", {}))
    size = len(tok)
    tok.add_tokens(["<note>"])
    tok.save_pretrained(folder / "saved")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / "tokenizer" / name).unlink()
        (folder / "saved" / name).rename(folder / "tokenizer" / name)
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": size if broken else len(tok),
    }
    (folder / "tokenizer" / "config.json").write_text(json.dumps(config), encoding="utf-8")
