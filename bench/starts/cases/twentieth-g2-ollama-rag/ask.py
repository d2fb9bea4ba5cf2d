import json
import sys

import ollama

from index import retrieve  # bm25 over the manuals, returns list[str]

SYSTEM = "You are the service assistant of the workshop. Answer from the manual sections below, and name the section. If the sections do not hold the answer, say so."


def build(question: str, k: int = 12) -> list[dict]:
    sections = "\n\n".join(retrieve(question, k=k))
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{question}\n\nManual sections:\n\n{sections}"},
    ]


def ask(question: str) -> dict:
    r = ollama.chat(model="manuals-8b", messages=build(question), options={"temperature": 0, "num_predict": 300})
    return {
        "prompt": question,
        "prediction": r["message"]["content"],
        "finish_reason": r["done_reason"],
        "prompt_eval_count": r["prompt_eval_count"],
        "eval_count": r["eval_count"],
    }


if __name__ == "__main__":
    with open("served_answers.jsonl", "w") as out:
        for row in open(sys.argv[1]):
            out.write(json.dumps(ask(json.loads(row)["question"])) + "\n")
