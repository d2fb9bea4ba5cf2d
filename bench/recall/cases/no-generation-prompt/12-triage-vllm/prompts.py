from transformers import AutoTokenizer

SYSTEM = "You are a triage nurse. Give the urgency (1-5) and one sentence of reason."

TEMPLATE = {
    "tokenize": False,
    "add_generation_prompt": False,
}


class PromptBuilder:
    def __init__(self, run, max_prompt=1800):
        self.tok = AutoTokenizer.from_pretrained(run)
        self.max_prompt = max_prompt

    def chat(self, case):
        lines = [f"Age: {case['age']}", f"Complaint: {case['complaint']}"]
        if case.get("history"):
            lines.append(f"History: {case['history']}")
        return [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "\n".join(lines)},
        ]

    def text(self, case):
        text = self.tok.apply_chat_template(self.chat(case), **TEMPLATE)
        n = len(self.tok(text, add_special_tokens=False)["input_ids"])
        if n > self.max_prompt:
            raise ValueError(f"case {case['id']}: {n} tokens")
        return text
