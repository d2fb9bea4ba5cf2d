import json, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

OUT = "out/llama32-3b-manuals"
tok = AutoTokenizer.from_pretrained(OUT)
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-3B", torch_dtype=torch.bfloat16, device_map="cuda:0")
model.resize_token_embeddings(len(tok))
model = PeftModel.from_pretrained(model, OUT)
model.eval()
done = tok.convert_tokens_to_ids("<|done|>")

with open("answers.jsonl", "w") as f:
    for line in open("manuals_test.jsonl"):
        r = json.loads(line)
        x = tok(f"<|ctx|>{r['context']}<|ask|>{r['question']}<|reply|>", return_tensors="pt").to("cuda:0")
        y = model.generate(**x, max_new_tokens=128, do_sample=False, eos_token_id=done, pad_token_id=tok.pad_token_id)
        text = tok.decode(y[0, x["input_ids"].shape[1]:])
        f.write(json.dumps({"question": r["question"], "prediction": text, "reference": r["answer"]}) + "\n")
