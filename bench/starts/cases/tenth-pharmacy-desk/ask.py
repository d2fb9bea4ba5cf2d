"""Asks the pharmacy model the questions of the test desk and keeps text and seconds of each answer."""
import json
import statistics
import sys
import time

from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")
SYSTEM = "You work at the desk of a pharmacy. Answer in one or two sentences."


def ask(question):
    started = time.perf_counter()
    reply = client.chat.completions.create(
        model="pharmacy",
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
        temperature=0.6,
        top_p=0.95,
        max_tokens=4096,
    )
    choice = reply.choices[0]
    return {
        "prompt": question,
        "prediction": choice.message.content,
        "finish_reason": choice.finish_reason,
        "completion_tokens": reply.usage.completion_tokens,
        "seconds": round(time.perf_counter() - started, 2),
    }


def main(source="desk_test.jsonl", target="answers.jsonl"):
    with open(source) as f:
        rows = [json.loads(line) for line in f]
    times = []
    with open(target, "w") as out:
        for row in rows:
            answer = ask(row["question"])
            answer["reference"] = row["answer"]
            times.append(answer["seconds"])
            out.write(json.dumps(answer, ensure_ascii=False) + "\n")
    print(f"{len(times)} answers, median {statistics.median(times):.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
