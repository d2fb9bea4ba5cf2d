"""Accuracy of the tuned model on the quiz set (300 word problems). Last run: 37.0 %."""
import json
import re

from transformers import AutoTokenizer
from vllm import LLM, SamplingParams

MODEL = "outputs/quiz-7b-merged"
FINAL = re.compile(r"####\s*(-?[\d,]+)")


def final_number(text):
    """The number after the last '####', as in the training answers; None where there is none."""
    found = FINAL.findall(text)
    return found[-1].replace(",", "") if found else None


def main():
    with open("data/quiz_test.jsonl") as f:
        rows = [json.loads(line) for line in f]

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    prompts = [
        tokenizer.apply_chat_template([{"role": "user", "content": r["question"]}], tokenize=False, add_generation_prompt=True)
        for r in rows
    ]

    llm = LLM(model=MODEL, dtype="bfloat16", max_model_len=4096, gpu_memory_utilization=0.9)
    outputs = llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=320))

    right = 0
    with open("predictions.jsonl", "w") as f:
        for row, out in zip(rows, outputs):
            text = out.outputs[0].text
            correct = final_number(text) == row["answer"]
            right += correct
            f.write(json.dumps({"id": row["id"], "question": row["question"], "response": text, "answer": row["answer"], "correct": correct}) + "\n")
    print(f"accuracy {right / len(rows):.3f}")


if __name__ == "__main__":
    main()
