import json

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

SYSTEM = (
    "You moderate comments of a local newspaper. Answer with safe or unsafe. "
    "If unsafe, name the category: insult, threat, spam, personal data."
)

rows = [json.loads(l) for l in open("test.jsonl", encoding="utf-8")]
llm = LLM("Qwen/Qwen2.5-7B-Instruct", enable_lora=True, max_lora_rank=16, max_model_len=4096)
convs = [
    [{"role": "system", "content": SYSTEM}, {"role": "user", "content": r["comment"]}]
    for r in rows
]
outs = llm.chat(
    convs,
    SamplingParams(temperature=0.0, max_tokens=32),
    lora_request=LoRARequest("mod", 1, "runs/mod-lora/checkpoint-620"),
)
with open("preds.jsonl", "w", encoding="utf-8") as f:
    for r, o in zip(rows, outs):
        f.write(json.dumps({"comment": r["comment"], "label": r["label"], "output": o.outputs[0].text}, ensure_ascii=False) + "\n")
