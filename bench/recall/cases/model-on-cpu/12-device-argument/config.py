from dataclasses import dataclass


@dataclass
class Config:
    base: str = "Qwen/Qwen2.5-1.5B-Instruct"
    data: str = "data/faq.jsonl"
    out: str = "runs/faq"
    device: str = "cpu"
    lr: float = 1e-4
    epochs: int = 3
    batch_size: int = 8
    rank: int = 16
