from dataclasses import dataclass

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser


@dataclass
class Args:
    model_dir: str = "out/commit-messages"
    data_file: str = "data/diffs_test.jsonl"
    save_to: str = "out/commit-messages/test.jsonl"
    max_new_tokens: int = 80


class CommitWriter:
    def __init__(self, args):
        self.args = args
        self.tokenizer = AutoTokenizer.from_pretrained(args.model_dir)
        self.model = AutoModelForCausalLM.from_pretrained(args.model_dir, dtype=torch.bfloat16).to("cuda")
        self.model.eval()

    @torch.inference_mode()
    def __call__(self, row):
        enc = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": f"Write a commit message for this diff.\n```diff\n{row['diff']}\n```"}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        ).to("cuda")
        ids = self.model.generate(
            **enc, max_new_tokens=self.args.max_new_tokens, do_sample=False, temperature=None, top_p=None, top_k=None
        )
        reply = self.tokenizer.decode(ids[0, enc["input_ids"].shape[1] :], skip_special_tokens=True)
        return {"prediction": reply.strip()}


def main():
    (args,) = HfArgumentParser(Args).parse_args_into_dataclasses()
    ds = load_dataset("json", data_files=args.data_file, split="train")
    ds = ds.filter(lambda r: len(r["diff"]) < 12000)
    ds = ds.map(CommitWriter(args), load_from_cache_file=False, desc="writing messages")
    ds.select_columns(["sha", "message", "prediction"]).to_json(args.save_to)
    first_word = sum(p.split()[:1] == m.split()[:1] for p, m in zip(ds["prediction"], ds["message"]))
    print(f"same first word: {first_word / len(ds):.3f}")


if __name__ == "__main__":
    main()
