import logging
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import SFTConfig, SFTTrainer

logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S", level=logging.INFO)
log = logging.getLogger(__name__)


@dataclass
class Extra:
    model_name_or_path: str = field(default="meta-llama/Llama-3.1-8B-Instruct")
    train_file: str = field(default="data/tenders_train.jsonl")


def main():
    extra, args = HfArgumentParser((Extra, SFTConfig)).parse_args_into_dataclasses()
    args.max_length = 2048
    args.assistant_only_loss = False
    tok = AutoTokenizer.from_pretrained(extra.model_name_or_path)
    tok.pad_token = "<|finetune_right_pad_id|>"
    log.info("loading rows of %s", extra.train_file)
    rows = load_dataset("json", data_files=extra.train_file, split="train")
    model = AutoModelForCausalLM.from_pretrained(extra.model_name_or_path, torch_dtype=torch.bfloat16)
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=rows,
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    log.info("resuming from %s", args.resume_from_checkpoint)
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    trainer.save_model(args.output_dir)
    log.info("adapter saved to %s", args.output_dir)


if __name__ == "__main__":
    main()
