import json
import sys

from runtime import Runtime

if __name__ == "__main__":
    rt = Runtime("runtime.yaml")
    with open(sys.argv[1], encoding="utf-8") as f:
        questions = [json.loads(x)["question"] for x in f]
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        for i in range(0, len(questions), 16):
            part = questions[i : i + 16]
            for q, a in zip(part, rt.chat(part)):
                out.write(json.dumps({"question": q, "answer": a}, ensure_ascii=False) + "\n")
