from dataclasses import dataclass


@dataclass
class Settings:
    base: str = "HuggingFaceTB/SmolLM2-1.7B"
    data: str = "data/tasks.jsonl"
    out: str = "runs/tasks"
    answer_mark: str = "### Response:\n"
    max_length: int = 1024
    lr: float = 1e-4
