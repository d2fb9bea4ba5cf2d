"""Answer the week's questions of the farm advice line with our tuned Mistral (GGUF, Q4_K_M)."""
import csv
import sys
import time

from llama_cpp import Llama

MODEL = "models/farm-mistral-7b-q4_k_m.gguf"

llm = Llama(
    model_path=MODEL,
    n_gpu_layers=-1,  # all of them on the 4070 Ti
    n_ctx=4096,
    n_batch=512,
    flash_attn=True,
    verbose=True,
)


def answer(question):
    out = llm.create_chat_completion(
        messages=[{"role": "user", "content": question}],
        max_tokens=300,
        temperature=0.2,
    )
    choice = out["choices"][0]
    return choice["message"]["content"].strip(), choice["finish_reason"], out["usage"]["completion_tokens"]


def main(source, target):
    with open(source, newline="", encoding="utf-8") as f, open(target, "w", newline="", encoding="utf-8") as g:
        writer = csv.writer(g)
        writer.writerow(["id", "question", "answer", "finish_reason", "tokens", "seconds"])
        for row in csv.DictReader(f):
            t = time.time()
            text, reason, n = answer(row["question"])
            writer.writerow([row["id"], row["question"], text, reason, n, round(time.time() - t, 1)])
            g.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
