from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig, TaskType, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq
from transformers import HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Args:
    model_name: str = field(default="mistralai/Mistral-7B-v0.3")
    data_file: str = field(default="data/radio_plays.jsonl")
    max_length: int = field(default=2048)
    lora_r: int = field(default=32)


def speakers():
    return {"additional_special_tokens": [f"<spk{i}>" for i in range(1, 9)] + ["<scene>", "<sound>"]}


def load(args):
    tok = AutoTokenizer.from_pretrained(args.model_name)
    tok.pad_token = tok.unk_token
    model = AutoModelForCausalLM.from_pretrained(args.model_name, dtype=torch.bfloat16)
    if tok.add_special_tokens(speakers()) > 0:
        model.resize_token_embeddings(len(tok))
    model = get_peft_model(
        model,
        LoraConfig(
            task_type=TaskType.CAUSAL_LM,
            r=args.lora_r,
            lora_alpha=2 * args.lora_r,
            lora_dropout=0.05,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        ),
    )
    model.print_trainable_parameters()
    return model, tok


def main():
    args, targs = HfArgumentParser((Args, TrainingArguments)).parse_args_into_dataclasses()
    model, tok = load(args)

    def encode(row):
        ids = tok(row["script"])["input_ids"][: args.max_length - 1] + [tok.eos_token_id]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": list(ids)}

    ds = load_dataset("json", data_files=args.data_file, split="train")
    ds = ds.map(encode, remove_columns=ds.column_names)
    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
