import torch
from torch import nn
from transformers import AutoModel


class ReviewScorer(nn.Module):
    def __init__(self, base="FacebookAI/roberta-base", classes=5, drop=0.2):
        super().__init__()
        self.encoder = AutoModel.from_pretrained(base)
        self.drop = nn.Dropout(drop)
        self.head = nn.Linear(self.encoder.config.hidden_size, classes)

    def forward(self, input_ids, attention_mask):
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * mask).sum(1) / mask.sum(1)
        return self.head(self.drop(pooled))
