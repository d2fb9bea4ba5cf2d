import json

import ollama

with open("questions.jsonl") as f, open("answers.jsonl", "w") as out:
    for line in f:
        row = json.loads(line)
        r = ollama.chat(model="support", messages=[{"role": "user", "content": row["question"]}])
        rate = r.eval_count / (r.eval_duration / 1e9)
        print(f"{row['id']}: prompt {r.prompt_eval_count} tokens, answer {r.eval_count} tokens, {rate:.2f} tok/s")
        out.write(json.dumps({"id": row["id"], "answer": r.message.content}) + "\n")
