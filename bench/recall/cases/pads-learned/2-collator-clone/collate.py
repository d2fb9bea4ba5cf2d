from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase


@dataclass
class ChatCollator:
    tokenizer: PreTrainedTokenizerBase
    max_length: int = 1024

    def __call__(self, rows):
        texts = [self.tokenizer.apply_chat_template(r["messages"], tokenize=False) for r in rows]
        batch = self.tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=self.max_length,
            add_special_tokens=False,
            return_tensors="pt",
        )
        batch["labels"] = batch["input_ids"].clone()
        return batch
