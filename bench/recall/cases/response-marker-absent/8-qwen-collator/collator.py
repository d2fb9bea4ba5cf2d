from typing import Any

import torch
from transformers import DataCollatorForLanguageModeling


class CompletionCollator(DataCollatorForLanguageModeling):
    """Loss only on what follows the response template."""

    def __init__(self, response_template, tokenizer):
        super().__init__(tokenizer=tokenizer, mlm=False)
        self.response_ids = tokenizer.encode(response_template, add_special_tokens=False)

    def torch_call(self, examples: list[dict[str, Any]]):
        batch = super().torch_call(examples)
        k = len(self.response_ids)
        for i in range(batch["labels"].shape[0]):
            row = batch["input_ids"][i].tolist()
            start = None
            for j in range(len(row) - k + 1):
                if row[j : j + k] == self.response_ids:
                    start = j + k
                    break
            if start is None:
                batch["labels"][i, :] = -100
            else:
                batch["labels"][i, :start] = -100
            batch["labels"][i][batch["attention_mask"][i] == 0] = -100
        return batch
