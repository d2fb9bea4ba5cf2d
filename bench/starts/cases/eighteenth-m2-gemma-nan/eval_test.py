# loss and perplexity on the test set, base vs. tuned
import argparse
import json
import math

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

ap = argparse.ArgumentParser()
ap.add_argument("model")
ap.add_argument("--test", default="contracts_test.jsonl")
ap.add_argument("--bs", type=int, default=4)
a = ap.parse_args()

tok = AutoTokenizer.from_pretrained(a.model)
model = AutoModelForCausalLM.from_pretrained(a.model, dtype="auto", attn_implementation="eager")
model.config.use_cache = False

test = load_dataset("json", data_files=a.test, split="train")
trainer = SFTTrainer(
    model=model,
    args=SFTConfig(
        output_dir="/scratch/eval",
        per_device_eval_batch_size=a.bs,
        fp16_full_eval=True,
        bf16=False,
        max_length=2048,
        completion_only_loss=True,
        prediction_loss_only=True,
        report_to="none",
    ),
    train_dataset=test,
    eval_dataset=test,
    processing_class=tok,
)
metrics = trainer.evaluate()
metrics["perplexity"] = math.exp(metrics["eval_loss"])
print(json.dumps(metrics, indent=1))
