"""Answers for the whole test set (1x A100 80GB)."""
import argparse
import json

from vllm import LLM, SamplingParams


def read(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def engine(path):
    return LLM(
        model=path,
        dtype="bfloat16",
        max_model_len=8192,
        gpu_memory_utilization=0.9,
        cpu_offload_gb=40,
        seed=0,
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen3-8B")
    p.add_argument("--questions", default="questions.jsonl")
    p.add_argument("--out", default="answers.jsonl")
    a = p.parse_args()

    rows = read(a.questions)
    llm = engine(a.model)
    sampling = SamplingParams(temperature=0.0, max_tokens=1024)
    chats = [[{"role": "user", "content": r["question"]}] for r in rows]
    outs = llm.chat(chats, sampling, chat_template_kwargs={"enable_thinking": False})
    with open(a.out, "w") as f:
        for row, out in zip(rows, outs):
            record = {"id": row["id"], "answer": out.outputs[0].text, "finish": out.outputs[0].finish_reason}
            f.write(json.dumps(record, ensure_ascii=False) + "\n")
    print(len(outs), "answers written to", a.out)


if __name__ == "__main__":
    main()
