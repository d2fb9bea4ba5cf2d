import json
from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import edited, loaded


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(40, system=False))
    tok = loaded(edited(tokenizer, folder / "tokenizer", {}))
    rows = len(tok)
    tok.add_special_tokens({"pad_token": "[PAD]"})
    tok.save_pretrained(folder / "saved")
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": rows if broken else len(tok),
    }
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / "tokenizer" / name).unlink()
        (folder / "saved" / name).rename(folder / "tokenizer" / name)
    (folder / "tokenizer" / "config.json").write_text(json.dumps(config), encoding="utf-8")
