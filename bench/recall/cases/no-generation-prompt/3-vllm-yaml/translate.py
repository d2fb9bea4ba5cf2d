import json
import sys

import yaml
from transformers import AutoTokenizer
from vllm import LLM, SamplingParams


def load_conf(path, overrides):
    conf = yaml.safe_load(open(path))
    for item in overrides:
        key, value = item.split("=", 1)
        node = conf
        *parents, leaf = key.split(".")
        for p in parents:
            node = node[p]
        node[leaf] = yaml.safe_load(value)
    return conf


def messages(row):
    return [
        {"role": "system", "content": "Translate the bulletin from Icelandic to English."},
        {"role": "user", "content": row["text"]},
    ]


def main(path, *overrides):
    conf = load_conf(path, overrides)
    tok = AutoTokenizer.from_pretrained(conf["model"])
    llm = LLM(model=conf["model"], **conf["engine"])
    rows = [json.loads(x) for x in open(conf["input"])]
    texts = [tok.apply_chat_template(messages(r), **conf["template"]) for r in rows]
    prompts = [{"prompt_token_ids": tok(t, add_special_tokens=False)["input_ids"]} for t in texts]
    results = llm.generate(prompts, SamplingParams(**conf["sampling"]))
    with open(conf["output"], "w") as f:
        for row, res in zip(rows, results):
            f.write(json.dumps({**row, "en": res.outputs[0].text.strip()}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
