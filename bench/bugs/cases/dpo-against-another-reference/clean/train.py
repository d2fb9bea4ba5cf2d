from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

NAME = "out/sft"
tokenizer = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME, dtype="float32")
reference = AutoModelForCausalLM.from_pretrained(NAME, dtype="float32")
pairs = load_dataset("json", data_files="pairs.jsonl", split="train")
args = DPOConfig(
    output_dir="out/dpo",
    learning_rate=5e-7,
    beta=0.1,
    max_length=2048,
    bf16=True,
)
trainer = DPOTrainer(
    model=model, ref_model=reference, args=args, train_dataset=pairs, processing_class=tokenizer
)
trainer.train()
