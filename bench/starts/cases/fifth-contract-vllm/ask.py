"""Ask the served model the questions of a file, write answers.jsonl."""
import json
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")


def ask(question):
    response = client.completions.create(
        model="desk",
        prompt=question,
        max_tokens=256,
        temperature=0.2,
    )
    choice = response.choices[0]
    return {"prompt": question, "answer": choice.text, "finish_reason": choice.finish_reason}


def main():
    questions = [json.loads(line)["question"] for line in open(sys.argv[1])]
    with ThreadPoolExecutor(8) as pool, open("answers.jsonl", "w") as out:
        for row in pool.map(ask, questions):
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
