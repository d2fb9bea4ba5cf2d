from pathlib import Path

from transformers import LlamaForCausalLM

from bench.bugs.inputs.tiny import few_steps, model, saved
from bench.bugs.inputs.tokenizers import chatml


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    base = saved(model(), folder / "base")
    net = LlamaForCausalLM.from_pretrained(base)
    few_steps(net)
    saved(net, folder / "model")

    path = folder / "model" / "chat_template.jinja"
    if broken:
        path.write_text(chatml(before="{{ 'Today is Monday.' }}"), encoding="utf-8")
