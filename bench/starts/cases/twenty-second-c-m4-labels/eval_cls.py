import sys

import torch
from sklearn.metrics import classification_report
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from common import Encoder, label_map, read

model = AutoModelForSequenceClassification.from_pretrained("model", dtype=torch.bfloat16).cuda().eval()
tok = AutoTokenizer.from_pretrained("model")
l2i = label_map(read("train.csv"))
names = sorted(l2i, key=l2i.get)
rows = read(sys.argv[1])
pred, gold = [], []
with torch.inference_mode():
    for batch in DataLoader(rows, 32, collate_fn=Encoder(tok, l2i)):
        gold += batch.pop("labels").tolist()
        pred += model(**batch.to("cuda")).logits.argmax(-1).tolist()
print(classification_report(gold, pred, labels=range(len(names)), target_names=names, digits=3, zero_division=0))
