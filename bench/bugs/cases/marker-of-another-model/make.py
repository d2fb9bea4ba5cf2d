import json
from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    own = {
        "llama3.1-instruct": "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "gemma3": "<start_of_turn>model\n",
        "qwen2.5-instruct": "<|im_start|>assistant\n",
    }
    other = "[/INST]"
    write(folder / "train.jsonl", chats(40))
    settings = {
        "max_length": 2048,
        "mask_by": "response-marker",
        "response_marker": other if broken else own[tokenizer.name],
    }
    (folder / "truetune.yaml").write_text(json.dumps(settings), encoding="utf-8")
