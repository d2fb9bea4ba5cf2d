from pathlib import Path

import torch
from torch.optim.lr_scheduler import LambdaLR

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit, model


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    growth = 1.12 if broken else 1.0
    schedule = LambdaLR(optimizer, lambda step: growth ** max(0, step - 80))
    rows = encoded(questions(100))
    fit(folder, rows, net=net, max_steps=160, max_grad_norm=1e9, optimizers=(optimizer, schedule))
