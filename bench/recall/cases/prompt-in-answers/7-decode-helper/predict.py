import argparse
import json

import torch
from gen_utils import run
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


def load(base, adapter):
    tok = AutoTokenizer.from_pretrained(base, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16, device_map="auto")
    return PeftModel.from_pretrained(model, adapter).eval(), tok


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--adapter", default="checkpoints/recipes/best")
    ap.add_argument("--questions", default="data/test_questions.json")
    ap.add_argument("--output", default="results/answers.json")
    ap.add_argument("--bs", type=int, default=8)
    args = ap.parse_args()

    model, tok = load(args.base, args.adapter)
    questions = json.load(open(args.questions))
    outputs = []
    for i in range(0, len(questions), args.bs):
        chats = [[{"role": "user", "content": q}] for q in questions[i : i + args.bs]]
        outputs += run(
            model, tok, chats, max_new_tokens=256, do_sample=False, temperature=None, top_p=None, top_k=None
        )
    with open(args.output, "w") as f:
        json.dump([{"question": q, "answer": o.strip()} for q, o in zip(questions, outputs)], f, indent=2)


if __name__ == "__main__":
    main()
