import argparse
import json

from llama_cpp import Llama

TEMPLATE = (
    "<|im_start|>system\nYou draft polite reply e-mails.<|im_end|>\n"
    "<|im_start|>user\n{mail}<|im_end|>\n<|im_start|>assistant\n"
)


class Drafter:
    def __init__(self, gguf, ctx=8192):
        self.llm = Llama(model_path=gguf, n_ctx=ctx, n_gpu_layers=-1, seed=1, verbose=False)
        self.options = {"temperature": 0.2, "top_p": 0.95, "stop": ["<|im_end|>"]}

    def draft(self, mail):
        res = self.llm.create_completion(TEMPLATE.format(mail=mail), **self.options)
        return res["choices"][0]["text"].strip()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--gguf", default="qwen2.5-mail-q5_k_m.gguf")
    ap.add_argument("--mails", default="mails.jsonl")
    ap.add_argument("--out", default="drafts.jsonl")
    args = ap.parse_args()
    drafter = Drafter(args.gguf)
    with open(args.mails, encoding="utf-8") as src, open(args.out, "w", encoding="utf-8") as dst:
        for line in src:
            row = json.loads(line)
            dst.write(json.dumps({"id": row["id"], "draft": drafter.draft(row["body"])}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
