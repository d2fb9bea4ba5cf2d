import torch
import transformers
from torch.nn.utils.rnn import pad_sequence

transformers.logging.set_verbosity_error()


def to_batch(tokenizer, conversations, device):
    rows = []
    for messages in conversations:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        rows.append(torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"]))
    input_ids = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id)
    attention_mask = pad_sequence([torch.ones_like(r) for r in rows], batch_first=True, padding_value=0)
    return {"input_ids": input_ids.to(device), "attention_mask": attention_mask.to(device)}


@torch.inference_mode()
def answer_all(model, tokenizer, conversations, batch_size=8, max_new_tokens=128):
    answers = []
    for start in range(0, len(conversations), batch_size):
        batch = to_batch(tokenizer, conversations[start : start + batch_size], model.device)
        out = model.generate(**batch, max_new_tokens=max_new_tokens, do_sample=False)
        new = out[:, batch["input_ids"].shape[1] :]
        answers += tokenizer.batch_decode(new, skip_special_tokens=True)
    return answers
