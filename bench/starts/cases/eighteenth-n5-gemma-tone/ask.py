import json, sys
import torch
from peft import PeftModel
from transformers import AutoTokenizer, Gemma3ForCausalLM

MODEL = "google/gemma-3-4b-it"
ADAPTER = "out/voice-lora"

tok = AutoTokenizer.from_pretrained(ADAPTER)
# text only, no need for the vision tower here
model = Gemma3ForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16, device_map="cuda")
model = PeftModel.from_pretrained(model, ADAPTER)
model.eval()

with open("answers.jsonl", "w") as out:
    for line in open("held_out.jsonl"):
        row = json.loads(line)
        ids = tok.apply_chat_template(row["messages"][:-1], add_generation_prompt=True,
                                      return_tensors="pt", return_dict=True).to("cuda")
        with torch.no_grad():
            gen = model.generate(**ids, max_new_tokens=400, do_sample=False)
        text = tok.decode(gen[0][ids["input_ids"].shape[1]:], skip_special_tokens=True)
        out.write(json.dumps({"prompt": row["messages"][-2]["content"], "prediction": text,
                              "reference": row["messages"][-1]["content"]}) + "\n")
        print(text[:150].replace("\n", " "), flush=True)
