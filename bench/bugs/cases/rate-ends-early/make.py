from pathlib import Path

import torch
from transformers import get_linear_schedule_with_warmup

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit, model


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    net, steps = model(), 120
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    ends = steps // 4 if broken else steps
    schedule = get_linear_schedule_with_warmup(
        optimizer, num_warmup_steps=4, num_training_steps=ends
    )
    fit(folder, encoded(questions(100)), net=net, max_steps=steps, optimizers=(optimizer, schedule))
