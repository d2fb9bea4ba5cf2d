import re


def final_answer(text):
    boxed = re.findall(r"\\boxed\{([^{}]*)\}", text)
    if boxed:
        return boxed[-1].strip()
    tail = re.findall(r"answer(?: is)?[:\s]*(-?[\d./]+)", text, flags=re.I)
    return tail[-1].rstrip(".") if tail else None


def is_correct(text, gold):
    return final_answer(text) == str(gold).strip()
