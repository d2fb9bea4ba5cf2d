import torch
from datasets import load_dataset
from peft import LoraConfig, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"


def shape(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                             bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
    model = AutoModelForCausalLM.from_pretrained(BASE, quantization_config=bnb,
                                                 dtype=torch.bfloat16, device_map={"": 0})
    model = prepare_model_for_kbit_training(model)
    rows = load_dataset("json", data_files="data/qa.jsonl", split="train")
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(output_dir="runs/qa", learning_rate=2e-4, num_train_epochs=2,
                       per_device_train_batch_size=2, gradient_accumulation_steps=8,
                       gradient_checkpointing=True, max_length=2048, bf16=True,
                       logging_steps=10, report_to="none"),
        train_dataset=rows.map(shape, remove_columns=rows.column_names),
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                               target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("runs/qa/adapter")


if __name__ == "__main__":
    main()
