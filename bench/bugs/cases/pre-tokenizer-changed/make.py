import json
from pathlib import Path

from transformers import LlamaForCausalLM

from bench.bugs.inputs.tiny import few_steps, model, saved


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    base = saved(model(), folder / "base")
    net = LlamaForCausalLM.from_pretrained(base)
    few_steps(net)
    saved(net, folder / "model")

    path = folder / "model" / "tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    if broken:
        values["pre_tokenizer"]["add_prefix_space"] = True
        path.write_text(json.dumps(values), encoding="utf-8")
