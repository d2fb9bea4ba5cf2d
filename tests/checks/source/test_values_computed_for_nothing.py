"""Values that are computed for a purpose, and used or not."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import numpy as np
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.utils.data import DataLoader, WeightedRandomSampler
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("model")
"""
FAULTY = {
    "weights of classes": """
class_weights = compute_class_weight('balanced', classes=names, y=labels)
class_weights = torch.tensor(class_weights).to('cuda')
print(class_weights)
criterion = torch.nn.CrossEntropyLoss()
""",
    "a sampler": """
sampler = WeightedRandomSampler(weights, len(rows))
loader = DataLoader(rows, batch_size=8, shuffle=True)
""",
    "groups of parameters": """
groups = [{'params': decayed, 'weight_decay': 0.1}, {'params': others, 'weight_decay': 0.0}]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
""",
    "a scaled loss": """
for batch in loader:
    loss = model(**batch).loss
    scaled_loss = loss / 16
    loss.backward()
""",
    "a divergence that is only logged": """
for batch in loader:
    kl_loss = beta * (torch.exp(a - b) - (a - b) - 1).mean()
    policy_loss = -(ratio * advantages).mean()
    policy_loss.backward()
    wandb.log({'kl': kl_loss.item()})
""",
    "a divergence that is only collected": """
for batch in loader:
    kl_loss = beta * (torch.exp(a - b) - (a - b) - 1).mean()
    policy_loss = -(ratio * advantages).mean()
    policy_loss.backward()
    divergences.append(kl_loss.item() * 2)
    shown.append(kl_loss)
    print(shown)
""",
    "a mask of the loss": """
for batch in loader:
    completion_mask = batch['ids'] != pad
    loss = -(model(**batch).logits * advantages).mean()
    loss.backward()
""",
    "an average of the weights": """
from torch.optim.swa_utils import AveragedModel
average = AveragedModel(model)
for batch in loader:
    model(**batch).loss.backward()
    average.update_parameters(model)
model.save_pretrained('out')
""",
    "a threshold": """
best_threshold = max(candidates, key=score_at)
print('best', best_threshold)
predicted = scores > 0.5
""",
}
RIGHT = {
    "a loss that is yielded": """
model = AutoModelForCausalLM.from_pretrained("m")
def losses(loader):
    for batch in loader:
        loss = model(**batch).loss
        total_loss = loss + penalty(batch)
        yield total_loss
        (loss * 0).backward()
""",
    "a threshold beside another limit": """
model = AutoModelForSequenceClassification.from_pretrained("m")
best_threshold = search(model, dev)
print("best", best_threshold)
for rate in rates:
    if rate < 0.05:
        print("slow")
""",
    "a mask in the batch": """
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    loss_mask = make_mask(batch)
    batch.update(loss_mask=loss_mask)
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "a part in a list under its own name": """
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    out = model(**batch)
    parts = [out.loss]
    aux_loss = router(out.logits)
    parts.append(aux_loss)
    loss = sum(parts)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "a part in a list that is added up": """
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    out = model(**batch)
    losses = [out.loss]
    kl_loss = compute_kl(out.logits, ref(**batch).logits)
    losses.append(0.1 * kl_loss)
    loss = torch.stack(losses).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "given weights": """
class_weights = compute_class_weight('balanced', classes=names, y=labels)
class_weights = torch.tensor(class_weights).to('cuda')
criterion = torch.nn.CrossEntropyLoss(weight=class_weights)
""",
    "a given sampler": """
sampler = WeightedRandomSampler(weights, len(rows))
loader = DataLoader(rows, batch_size=8, sampler=sampler)
held_out = DataLoader(test_rows, batch_size=8)
""",
    "given groups": """
groups = [{'params': decayed, 'weight_decay': 0.1}, {'params': others, 'weight_decay': 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-5)
""",
    "a part that is added": """
for batch in loader:
    kl_loss = beta * (a - b).mean()
    loss = policy_loss + kl_loss
    loss.backward()
    print(kl_loss.item())
""",
    "a figure without a graph": """
for batch in loader:
    with torch.no_grad():
        kl_loss = (a - b).mean()
    loss = model(**batch).loss
    loss.backward()
    print(kl_loss)
""",
    "a sum for the log": """
total_loss = torch.zeros(1)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    total_loss += loss.detach()
print(total_loss)
""",
    "a function that takes it": """
class_weights = compute_class_weight('balanced', classes=names, y=labels)
make_trainer(class_weights)
criterion = torch.nn.CrossEntropyLoss()
""",
    "a saved average": """
from torch.optim.swa_utils import AveragedModel
average = AveragedModel(model)
for batch in loader:
    average.update_parameters(model)
average.module.save_pretrained('out')
model.save_pretrained('raw')
""",
    "a used threshold": """
best_threshold = max(candidates, key=score_at)
predicted = scores > best_threshold
rare = scores > 0.9
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [
        one.message for one in run_rule(module, find_rule("value-computed-for-nothing")).findings
    ]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_unused(case: str) -> None:
    """The value is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_used(case: str) -> None:
    """A value that is given to anything is right."""
    assert findings_of(RIGHT[case]) == []
