from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest


class Assistant:
    def __init__(self, config):
        self.llm = LLM(
            model=config["base"],
            enable_lora=True,
            max_lora_rank=config["rank"],
            max_model_len=config["context"],
        )
        self.lora = LoRARequest("handbook", 1, config["adapter"])
        self.sampling = SamplingParams(temperature=0.2, max_tokens=config["answer_tokens"])

    def reply(self, turns):
        outputs = self.llm.chat([turns], self.sampling, lora_request=self.lora)
        return outputs[0].outputs[0].text.strip()
