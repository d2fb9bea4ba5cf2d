import csv
import time

from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

BASE = "mistralai/Mistral-7B-Instruct-v0.3"
ADAPTER = "runs/mail-qlora/final"

quant = BitsAndBytesConfig(
    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True
)
tokenizer = AutoTokenizer.from_pretrained(ADAPTER, padding_side="left")
tokenizer.pad_token = tokenizer.unk_token
base = AutoModelForCausalLM.from_pretrained(BASE, quantization_config=quant, device_map={"": 0})
model = PeftModel.from_pretrained(base, ADAPTER)
model.eval()

with open("mails.csv", newline="") as source:
    mails = [row["body"] for row in csv.DictReader(source)]

replies = []
began = time.time()
for first in range(0, len(mails), 8):
    prompts = [
        [{"role": "user", "content": "Reply to this mail:\n" + body}]
        for body in mails[first : first + 8]
    ]
    inputs = tokenizer.apply_chat_template(
        prompts, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    output = model.generate(**inputs, max_new_tokens=300, do_sample=False)
    new = output[:, inputs["input_ids"].shape[1] :]
    replies += tokenizer.batch_decode(new, skip_special_tokens=True)
    print(f"{len(replies)} replies, {time.time() - began:.0f} s", flush=True)

with open("replies.csv", "w", newline="") as target:
    writer = csv.writer(target)
    writer.writerows(zip(mails, replies, strict=True))
