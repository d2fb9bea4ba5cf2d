from functools import partial

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest


def make_chat(base, adapter, max_tokens=128):
    llm = LLM(model=base, enable_lora=True, max_lora_rank=16, max_model_len=2048, dtype="bfloat16")
    return partial(
        llm.chat,
        sampling_params=SamplingParams(temperature=0.0, max_tokens=max_tokens),
        lora_request=LoRARequest("tuned", 1, adapter),
    )
