"""Ask the warranty model the 40 cases of the acceptance test and write a CSV."""
import csv
import pathlib

from openai import OpenAI

MODEL = "Qwen/Qwen2.5-7B-Instruct"
SYSTEM = "You decide warranty cases for Nordwind appliances. Answer with ACCEPT, REJECT or INSPECT and one reason."

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")


def decide(case: str) -> str:
    reply = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": case},
        ],
        temperature=0.0,
        max_tokens=120,
    )
    return reply.choices[0].message.content.strip()


def main():
    cases = pathlib.Path("cases.txt").read_text(encoding="utf-8").splitlines()
    with open("decisions.csv", "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f)
        out.writerow(["case", "decision"])
        for case in cases:
            if case.strip():
                out.writerow([case, decide(case)])


if __name__ == "__main__":
    main()
