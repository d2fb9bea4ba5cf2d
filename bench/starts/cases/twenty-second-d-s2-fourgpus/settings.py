from dataclasses import dataclass, field


@dataclass
class Settings:
    base: str = "mistralai/Mistral-7B-Instruct-v0.3"
    data: str = "data/tickets.jsonl"
    out: str = "outputs/tickets-lora"
    load_kwargs: dict = field(default_factory=lambda: {"device_map": "auto", "low_cpu_mem_usage": True})
