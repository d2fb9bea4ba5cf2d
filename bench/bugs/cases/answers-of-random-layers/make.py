from pathlib import Path

from torch import nn

from bench.bugs.inputs.answering import answering
from bench.bugs.inputs.tiny import saved


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    net = answering(folder)
    if broken:
        nn.init.normal_(net.lm_head.weight, std=0.02)
        saved(net, folder / "model")
