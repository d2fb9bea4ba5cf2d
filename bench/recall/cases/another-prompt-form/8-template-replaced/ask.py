import sys

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

ADAPTER = "out/helpdesk-15"


def main(question):
    tok = AutoTokenizer.from_pretrained(ADAPTER)
    model = AutoPeftModelForCausalLM.from_pretrained(ADAPTER, dtype=torch.bfloat16, device_map="auto").eval()
    enc = tok.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(model.device)
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=300, do_sample=False, eos_token_id=tok.eos_token_id)
    print(tok.decode(out[0, enc["input_ids"].shape[1] :], skip_special_tokens=True).strip())


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
