import argparse
import json

from tqdm import tqdm
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="meta-llama/Llama-3.1-8B-Instruct")
    p.add_argument("--lora", default="checkpoints/med-qa")
    p.add_argument("--test", default="data/medqa_test.jsonl")
    p.add_argument("--out", default="medqa_answers.jsonl")
    return p.parse_args()


def question(row):
    options = "\n".join(f"{k}) {v}" for k, v in sorted(row["options"].items()))
    return [{"role": "user", "content": f"{row['question']}\n{options}\nAnswer with the letter only."}]


def main():
    args = parse_args()
    llm = LLM(
        args.base,
        dtype="bfloat16",
        enable_lora=True,
        max_lora_rank=16,
        max_model_len=4096,
        gpu_memory_utilization=0.9,
    )
    lora = LoRARequest("medqa", 1, args.lora)
    params = SamplingParams(temperature=0.0, max_tokens=4)

    right = total = 0
    with open(args.test) as src, open(args.out, "w") as dst:
        for line in tqdm(src):
            row = json.loads(line)
            result = llm.chat(question(row), params, lora_request=lora, use_tqdm=False)
            letter = result[0].outputs[0].text.strip()[:1].upper()
            right += letter == row["answer"]
            total += 1
            dst.write(json.dumps({"id": row["id"], "letter": letter, "gold": row["answer"]}) + "\n")
    print(f"accuracy {right / total:.4f} ({right}/{total})")


if __name__ == "__main__":
    main()
