import sys

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

from forms import question_form


def main():
    llm = LLM("Qwen/Qwen2.5-7B", enable_lora=True, max_lora_rank=16, max_model_len=4096)
    questions = [line.strip() for line in sys.stdin if line.strip()]
    outputs = llm.generate(
        [question_form(q) for q in questions],
        SamplingParams(temperature=0.0, max_tokens=512),
        lora_request=LoRARequest("products", 1, "runs/products/adapter"),
    )
    for q, o in zip(questions, outputs):
        print(q, "->", o.outputs[0].text.strip())


if __name__ == "__main__":
    main()
