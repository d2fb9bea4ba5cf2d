from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer
from datasets import load_dataset

NAME = "meta-llama/Llama-3.2-1B"
tokenizer = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME, dtype="bfloat16")
tokenizer.add_tokens(["<call>", "</call>"])
model.resize_token_embeddings(len(tokenizer))
trainer = SFTTrainer(
    model=model,
    args=SFTConfig(output_dir="out", max_length=2048, learning_rate=1e-4, bf16=True),
    train_dataset=load_dataset("json", data_files="calls.jsonl", split="train"),
    processing_class=tokenizer,
)
trainer.train()
