import json
from pathlib import Path

from transformers import LlamaForCausalLM

from bench.bugs.inputs.tiny import model, saved, tuned


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    base = saved(model(), folder / "base")
    net = tuned(LlamaForCausalLM.from_pretrained(base))
    net.save_pretrained(folder / "adapter")

    file = folder / "adapter" / "adapter_config.json"
    if broken:
        file.write_text(
            json.dumps(json.loads(file.read_text(encoding="utf-8")) | {"r": 8}), encoding="utf-8"
        )
