import logging
import os
import sys
from dataclasses import dataclass, field

import torch
import transformers
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

logger = logging.getLogger(__name__)


@dataclass
class ScriptArgs:
    model_name: str = field(default="mistralai/Mistral-7B-Instruct-v0.3")
    train_file: str = field(default="data/support.jsonl")
    max_len: int = field(default=2048)


def main():
    parser = HfArgumentParser((ScriptArgs, TrainingArguments))
    script_args, training_args = parser.parse_args_into_dataclasses()
    logging.basicConfig(
        format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", handlers=[logging.StreamHandler(sys.stdout)]
    )
    logger.setLevel(logging.INFO)
    transformers.utils.logging.set_verbosity_info()
    set_seed(training_args.seed)

    last_checkpoint = None
    if os.path.isdir(training_args.output_dir):
        last_checkpoint = get_last_checkpoint(training_args.output_dir)
        if last_checkpoint is not None:
            logger.info(f"Checkpoint detected, resuming training at {last_checkpoint}.")

    tok = AutoTokenizer.from_pretrained(script_args.model_name)
    tok.pad_token = tok.unk_token
    tok.padding_side = "right"

    def encode(row):
        prompt = tok.apply_chat_template(row["messages"][:-1], add_generation_prompt=True, return_dict=False)
        full = tok.apply_chat_template(row["messages"], return_dict=False)
        full = full[: script_args.max_len]
        labels = [-100] * len(prompt) + full[len(prompt):]
        return {"input_ids": full, "attention_mask": [1] * len(full), "labels": labels[: len(full)]}

    ds = load_dataset("json", data_files=script_args.train_file, split="train")
    ds = ds.map(encode, remove_columns=ds.column_names, num_proc=4)
    logger.info(f"{len(ds)} training rows from {script_args.train_file}")

    model = AutoModelForCausalLM.from_pretrained(script_args.model_name, dtype=torch.bfloat16)
    model.config.use_cache = False
    model.enable_input_require_grads()
    model = get_peft_model(
        model,
        LoraConfig(
            r=16,
            lora_alpha=32,
            lora_dropout=0.05,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
            task_type="CAUSAL_LM",
        ),
    )
    model.print_trainable_parameters()

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
        processing_class=tok,
    )
    result = trainer.train(resume_from_checkpoint=last_checkpoint)
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()


if __name__ == "__main__":
    main()
