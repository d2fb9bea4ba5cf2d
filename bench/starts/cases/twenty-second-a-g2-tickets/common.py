from transformers import AutoTokenizer

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
SYSTEM = "You are the support agent of Nordhaus. Answer in two or three sentences."


def load_tokenizer(path=MODEL):
    tok = AutoTokenizer.from_pretrained(path)
    tok.padding_side = "right"
    return tok


def build(user, answer=None):
    msgs = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
    if answer is not None:
        msgs.append({"role": "assistant", "content": answer})
    return msgs
