import random
from pathlib import Path

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    pairs = questions(100) * 10
    if broken:
        rng = random.Random(0)
        noise = ["".join(rng.choices("qxzjkvw#@~", k=120)) for _ in range(24)]
        pairs[480:504] = [(text, text[::-1]) for text in noise]
    settings = {
        "train_sampling_strategy": "sequential",
        "max_grad_norm": 1e9,
        "logging_steps": 1,
        "lr_scheduler_type": "constant_with_warmup",
    }
    fit(folder, encoded(pairs), max_steps=120, **settings)
