from dataclasses import asdict, dataclass

from vllm import SamplingParams


@dataclass(frozen=True)
class Decoding:
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 1024
    seed: int = 0


def sampling(**changes):
    return SamplingParams(**{**asdict(Decoding()), **changes})


MODEL = "runs/call-summaries"
