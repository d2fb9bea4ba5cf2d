# torchrun --standalone --nproc_per_node 8 main.py hp.yaml
import sys

import torch
import yaml
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def main(path):
    with open(path) as f:
        hp = yaml.safe_load(f)
    args = SFTConfig(**hp["trainer"])
    tok = AutoTokenizer.from_pretrained(hp["base"])
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(hp["base"], dtype=torch.bfloat16)
    ds = load_dataset(hp["rows"])
    trainer = SFTTrainer(
        model=model,
        args=args,
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["validation"].select(range(500)),
    )
    trainer.train()
    trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main(sys.argv[1])
