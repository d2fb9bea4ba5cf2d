from dataclasses import dataclass


@dataclass
class Settings:
    model: str = "Qwen/Qwen2.5-1.5B-Instruct"
    train_file: str = "clauses_train.jsonl"
    test_file: str = "clauses_test.jsonl"
    out: str = "runs/clauses"
    epochs: int = 3
    per_device: int = 4
    accumulate: int = 2
    lr: float = 1e-4
    max_length: int = 2048
    rank: int = 16
