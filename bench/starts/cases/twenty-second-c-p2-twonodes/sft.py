import argparse

import yaml
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--config", required=True)
    cfg = yaml.safe_load(open(p.parse_args().config))
    name = cfg.pop("model_name_or_path")
    path = cfg.pop("dataset_path")
    tok = AutoTokenizer.from_pretrained(name)
    tok.pad_token = "<|finetune_right_pad_id|>"
    args = SFTConfig(**cfg, model_init_kwargs={"attn_implementation": "flash_attention_2", "dtype": "bfloat16"},
                     include_num_input_tokens_seen="non_padding")
    trainer = SFTTrainer(model=name, args=args, processing_class=tok,
                         train_dataset=load_dataset("json", data_files=path, split="train"))
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
