"""Llama-3.1-70B QLoRA on 4x 48GB with FSDP, after the blog post."""

import os
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, set_seed
from trl import SFTConfig, SFTTrainer, TrlParser


@dataclass
class ScriptArguments:
    dataset_path: str = field(default="data")
    model_id: str = field(default="meta-llama/Llama-3.1-70B")
    max_seq_length: int = field(default=2048)


def training_function(script_args, training_args):
    train_dataset = load_dataset(
        "json", data_files=os.path.join(script_args.dataset_path, "train.jsonl"), split="train"
    )
    tokenizer = AutoTokenizer.from_pretrained(script_args.model_id, use_fast=True)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    quantization_config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_use_double_quant=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    model = AutoModelForCausalLM.from_pretrained(
        script_args.model_id,
        quantization_config=quantization_config,
        attn_implementation="sdpa",
        torch_dtype=torch.bfloat16,
        use_cache=False,
    )

    peft_config = LoraConfig(
        lora_alpha=16,
        lora_dropout=0.05,
        r=16,
        bias="none",
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    training_args.max_length = script_args.max_seq_length
    training_args.gradient_checkpointing_kwargs = {"use_reentrant": True}
    trainer = SFTTrainer(
        model=model,
        args=training_args,
        train_dataset=train_dataset,
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    if trainer.accelerator.is_main_process:
        trainer.model.print_trainable_parameters()
    trainer.train()
    if trainer.is_fsdp_enabled:
        trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    trainer.save_model()


if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, SFTConfig))
    script_args, training_args = parser.parse_args_and_config()
    set_seed(training_args.seed)
    training_function(script_args, training_args)
