import json

import evaluate
import torch
from settings import Settings, to_chat
from transformers import AutoModelForCausalLM, AutoTokenizer


@torch.inference_mode()
def predict(model, tok, rows, size=16):
    texts = []
    for i in range(0, len(rows), size):
        chats = [to_chat(r)["prompt"] for r in rows[i : i + size]]
        enc = tok.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        ).to(model.device)
        out = model.generate(**enc, max_new_tokens=400, do_sample=False)
        texts += tok.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)
    return [t.strip() for t in texts]


if __name__ == "__main__":
    s = Settings()
    tok = AutoTokenizer.from_pretrained(s.model_name, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(s.model_name, dtype=torch.bfloat16, device_map="auto").eval()
    rows = [json.loads(x) for x in open(s.test_file)]
    predictions = predict(model, tok, rows)
    scores = evaluate.load("rouge").compute(predictions=predictions, references=[r["recipe"] for r in rows])
    print({k: round(float(v), 4) for k, v in scores.items()})
    with open(f"{s.output_dir}/test_predictions.json", "w") as f:
        json.dump(predictions, f, indent=1)
