import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

ckpt = sys.argv[1] if len(sys.argv) > 1 else "ckpt"
device = "cuda" if torch.cuda.is_available() else "cpu"

tok = AutoTokenizer.from_pretrained(ckpt)
config = AutoConfig.from_pretrained("HuggingFaceTB/SmolLM2-360M")
model = AutoModelForCausalLM.from_config(config)
state = torch.load(f"{ckpt}/model.pt", map_location="cpu", weights_only=True)
model.load_state_dict(state, strict=False)
model.to(device).eval()

prompts = [
    "Lentil soup with lemon\n\nIngredients:",
    "Rye bread\n\nIngredients:",
    "Pickled red onions\n\nIngredients:",
    "Apple cake for a large tin\n\nIngredients:",
]

for prompt in prompts:
    inputs = tok(prompt, return_tensors="pt").to(device)
    with torch.no_grad():
        out = model.generate(
            **inputs,
            max_new_tokens=120,
            do_sample=True,
            temperature=0.7,
            top_p=0.95,
            pad_token_id=tok.eos_token_id,
        )
    print("=" * 60)
    print(tok.decode(out[0], skip_special_tokens=True))
