import os
from pathlib import Path

import yaml

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    settings = {
        "base_model": "some/model",
        "datasets": [{"path": "chats.jsonl", "ds_type": "json", "type": "chat_template"}],
        "sequence_len": 4096,
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "num_epochs": 1,
        "learning_rate": 2e-5,
        "bf16": True,
        "dataset_prepared_path": "prepared",
        "output_dir": "out",
    }
    (folder / "axolotl.yaml").write_text(
        yaml.safe_dump(settings, sort_keys=False), encoding="utf-8"
    )
    write(folder / "chats.jsonl", chats(40))
    prepared = folder / "prepared" / "0f0f0f" / "dataset_info.json"
    prepared.parent.mkdir(parents=True)
    prepared.write_text("{}", encoding="utf-8")
    old, new = 1_700_000_000, 1_700_086_400
    os.utime(prepared, (old, old) if broken else (new, new))
    os.utime(folder / "chats.jsonl", (new, new) if broken else (old, old))
