from dataclasses import dataclass, field


@dataclass
class Schedule:
    peak: float = 1e-5
    total_updates: int = 400
    ramp_updates: int = 1000
    accumulate: int = 8


@dataclass
class Settings:
    base: str = "Qwen/Qwen2.5-1.5B-Instruct"
    data: str = "HuggingFaceH4/no_robots"
    micro_batch: int = 4
    max_tokens: int = 2048
    clip: float = 1.0
    save_to: str = "runs/nr-1p5b"
    schedule: Schedule = field(default_factory=Schedule)
