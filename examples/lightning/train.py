import json

import lightning
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")


class ChatData(torch.utils.data.Dataset):
    def __init__(self, path):
        with open(path) as file:
            self.chats = [json.loads(line)["messages"] for line in file]

    def __len__(self):
        return len(self.chats)

    def __getitem__(self, index):
        return tokenizer.apply_chat_template(self.chats[index], tokenize=False)


def collate(texts):
    batch = tokenizer(texts, padding=True, return_tensors="pt", add_special_tokens=False)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    # the label of a position is the next token
    ends = labels.new_full((len(texts), 1), -100)
    batch["labels"] = torch.cat([labels[:, 1:], ends], dim=1)
    return batch


class ChatModule(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("model")

    def training_step(self, batch, batch_idx):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-5)


loader = DataLoader(ChatData("chats.jsonl"), batch_size=2, shuffle=True, collate_fn=collate)
trainer = lightning.Trainer(max_epochs=4, accelerator="auto", log_every_n_steps=1)
module = ChatModule()
trainer.fit(module, loader)
module.model.save_pretrained("outputs")
tokenizer.save_pretrained("outputs")
