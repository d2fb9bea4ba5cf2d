import argparse
import json
import string

import torch
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer


def normalise(text):
    return " ".join(text.lower().translate(str.maketrans("", "", string.punctuation)).split())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
    parser.add_argument("--adapter", default="results/squad-lora")
    parser.add_argument("--test", default="data/squad_test.jsonl")
    parser.add_argument("--predictions", default="results/predictions.jsonl")
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.base)
    model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16, device_map="auto")
    model = PeftModel.from_pretrained(model, args.adapter).eval()

    with open(args.test) as f:
        test_set = [json.loads(line) for line in f]

    hits = 0
    with open(args.predictions, "w") as out_file:
        for example in tqdm(test_set):
            messages = [{"role": "user", "content": f"{example['context']}\n\nQuestion: {example['question']}"}]
            inputs = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
            ).to(model.device)
            with torch.no_grad():
                output = model.generate(**inputs, max_new_tokens=32, do_sample=False, temperature=None, top_p=None, top_k=None)
            answer = tokenizer.decode(output[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True).strip()
            hit = normalise(answer) in {normalise(a) for a in example["answers"]}
            hits += hit
            out_file.write(json.dumps({"id": example["id"], "answer": answer, "exact": hit}) + "\n")
    print(f"exact match: {100 * hits / len(test_set):.2f}")


if __name__ == "__main__":
    main()
