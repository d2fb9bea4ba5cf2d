import json
import sys

import yaml
from vllm import LLM, SamplingParams


def read(path):
    with open(path) as fh:
        return [json.loads(line) for line in fh]


def main(path):
    with open(path) as fh:
        cfg = yaml.safe_load(fh)
    llm = LLM(**cfg["engine"])
    tok = llm.get_tokenizer()
    rows = read(cfg["input"])
    prompts = []
    for row in rows:
        chat = [{"role": "user", "content": f"{cfg['instruction']}\n\n{row['report']}"}]
        ids = tok.apply_chat_template(chat, tokenize=True, add_generation_prompt=True, return_dict=True)["input_ids"]
        prompts.append({"prompt_token_ids": ids})
    outputs = llm.generate(prompts, SamplingParams(**cfg["sampling"]))
    with open(cfg["output"], "w") as out:
        for row, o in zip(rows, outputs):
            out.write(json.dumps({"id": row["id"], "summary": o.outputs[0].text.strip()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
