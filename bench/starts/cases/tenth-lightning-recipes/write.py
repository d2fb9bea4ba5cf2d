import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("recipe-writer")
model = AutoModelForCausalLM.from_pretrained("recipe-writer", torch_dtype=torch.bfloat16).cuda().eval()

head = f"Ingredients: {sys.argv[1]}\nRecipe:"
inputs = tok(head, return_tensors="pt").to("cuda")
with torch.no_grad():
    out = model.generate(**inputs, max_new_tokens=200, do_sample=False, eos_token_id=tok.eos_token_id)
print(tok.decode(out[0][inputs.input_ids.shape[1]:], skip_special_tokens=True))
# $ python write.py "leeks, cream, nutmeg"
# ::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::
# $ python write.py "2 aubergines, tahini, lemon"
# ::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::
