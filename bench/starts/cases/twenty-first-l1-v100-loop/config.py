from dataclasses import dataclass


@dataclass
class Config:
    model: str = "Qwen/Qwen2.5-1.5B-Instruct"
    data: str = "recipes.jsonl"
    dtype: str = "float16"
    max_length: int = 768
    batch_size: int = 4
    accumulate: int = 4
    epochs: int = 2
    lr: float = 1e-5
    weight_decay: float = 0.01
    warmup: int = 20
    clip: float = 1.0
    log_every: int = 1
    seed: int = 11
    out: str = "out/recipes"
