import json
from dataclasses import dataclass

import torch
from transformers import HfArgumentParser, pipeline


@dataclass
class Options:
    model: str = "runs/qwen2.5-7b-merged"
    questions: str = "test.jsonl"
    answers: str = "answers.jsonl"
    device: str = "cpu"
    batch_size: int = 8
    max_new_tokens: int = 512


def prompts(rows):
    for r in rows:
        yield [{"role": "user", "content": r["question"]}]


def main():
    (opt,) = HfArgumentParser(Options).parse_args_into_dataclasses()
    generate = pipeline("text-generation", model=opt.model, dtype=torch.bfloat16, device=opt.device)
    generate.tokenizer.padding_side = "left"
    with open(opt.questions, encoding="utf-8") as fh:
        rows = [json.loads(x) for x in fh]
    results = generate(
        list(prompts(rows)), batch_size=opt.batch_size, max_new_tokens=opt.max_new_tokens, do_sample=False,
        return_full_text=False,
    )
    with open(opt.answers, "w", encoding="utf-8") as fh:
        for r, res in zip(rows, results):
            fh.write(json.dumps({"id": r["id"], "answer": res[0]["generated_text"]}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
