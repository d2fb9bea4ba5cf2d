import sys

import yaml
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def main(path):
    with open(path) as f:
        conf = yaml.safe_load(f)
    args = SFTConfig(**conf["training"])
    tok = AutoTokenizer.from_pretrained(conf["base"])
    model = AutoModelForCausalLM.from_pretrained(conf["base"], dtype="float32", attn_implementation="sdpa")
    ds = load_dataset("json", data_files=conf["files"])

    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["valid"],
        processing_class=tok,
    )
    trainer.train()

    if trainer.is_world_process_zero():
        trainer.accelerator.print("writing the final weights to", args.output_dir)
        trainer.save_model(args.output_dir)
        tok.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main(sys.argv[1])
