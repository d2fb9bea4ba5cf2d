from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest


class TunedEngine:
    def __init__(self, base, adapter=None, rank=32, **llm_args):
        self.llm = LLM(model=base, enable_lora=adapter is not None, max_lora_rank=rank, **llm_args)
        self.call_args = {}
        if adapter is not None:
            self.call_args["lora_request"] = LoRARequest("tuned", 1, adapter)

    def chat(self, conversations, max_tokens=512):
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
        outputs = self.llm.chat(conversations, params, **self.call_args)
        return [o.outputs[0].text.strip() for o in outputs]
