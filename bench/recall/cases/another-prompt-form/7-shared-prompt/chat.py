import torch
from peft import AutoPeftModelForCausalLM
from prompting import prompt_text
from transformers import AutoTokenizer

ADAPTER = "out/helpdesk"
tok = AutoTokenizer.from_pretrained(ADAPTER)
model = AutoPeftModelForCausalLM.from_pretrained(ADAPTER, dtype=torch.bfloat16, device_map="auto").eval()


def ask(question):
    enc = tok(prompt_text(question), return_tensors="pt").to(model.device)
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=300, do_sample=True, temperature=0.3, top_p=0.9)
    return tok.decode(out[0][enc.input_ids.shape[1] :], skip_special_tokens=True).strip()


if __name__ == "__main__":
    print("Helpdesk assistant, empty line to leave.")
    while True:
        question = input("> ").strip()
        if not question:
            break
        print(ask(question), "\n")
