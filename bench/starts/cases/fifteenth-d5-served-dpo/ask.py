import csv
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")


def ask(q):
    r = client.chat.completions.create(
        model="dpo",
        messages=[
            {"role": "system", "content": "You are Mila, the assistant of the Havel clinic."},
            {"role": "user", "content": q},
        ],
        temperature=0,
        max_tokens=300,
    )
    return r.choices[0].message.content


questions = [line.strip() for line in open(sys.argv[1]) if line.strip()]
with ThreadPoolExecutor(16) as pool:
    answers = list(pool.map(ask, questions))
with open(sys.argv[2], "w", newline="") as f:
    w = csv.writer(f)
    w.writerow(["question", "answer"])
    w.writerows(zip(questions, answers))
