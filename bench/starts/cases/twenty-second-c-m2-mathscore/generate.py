import json

from datasets import load_dataset
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

test = load_dataset("json", data_files="mathwords_test.jsonl", split="train")
llm = LLM("Qwen/Qwen2.5-7B-Instruct", enable_lora=True, max_lora_rank=32, max_model_len=2048)
out = llm.chat(
    [[{"role": "user", "content": r["question"]}] for r in test],
    SamplingParams(temperature=0, max_tokens=512),
    lora_request=LoRARequest("math", 1, "out/checkpoint-702"),
)
with open("predictions.jsonl", "w") as f:
    for i, (r, o) in enumerate(zip(test, out)):
        f.write(json.dumps({"id": i, "question": r["question"], "answer": r["answer"],
                            "prediction": o.outputs[0].text, "finish_reason": o.outputs[0].finish_reason}) + "\n")
