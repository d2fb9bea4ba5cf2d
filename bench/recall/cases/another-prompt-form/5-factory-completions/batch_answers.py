import argparse
import json

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest


def make_prompt(row):
    lines = ["You assess insurance claims."]
    lines.append(f"User: {row['claim'].strip()}")
    lines.append("Assistant:")
    return "\n\n".join(lines)


class Answerer:
    def __init__(self, base, adapter):
        self.llm = LLM(base, enable_lora=True, max_lora_rank=16, dtype="bfloat16", max_model_len=4096)
        self.lora = LoRARequest("claims", 1, adapter)
        self.params = SamplingParams(temperature=0.0, max_tokens=400, stop=["\nUser:"])

    def __call__(self, rows):
        outputs = self.llm.generate([make_prompt(r) for r in rows], self.params, lora_request=self.lora)
        return [o.outputs[0].text.strip() for o in outputs]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--adapter", default="saves/qwen2_5-7b/claims")
    ap.add_argument("--input", default="data/claims_test.json")
    ap.add_argument("--output", default="claims_answers.json")
    a = ap.parse_args()
    with open(a.input) as f:
        rows = json.load(f)
    texts = Answerer(a.base, a.adapter)(rows)
    with open(a.output, "w") as f:
        json.dump([{**r, "prediction": t} for r, t in zip(rows, texts)], f, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
