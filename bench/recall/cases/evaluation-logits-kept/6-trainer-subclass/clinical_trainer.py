import numpy as np
from transformers import Trainer


class ClinicalTrainer(Trainer):
    """Trainer that reports how well the code tokens (ICD) are predicted."""

    def __init__(self, *args, code_token_ids=(), **kwargs):
        super().__init__(*args, **kwargs)
        self.code_token_ids = np.asarray(sorted(code_token_ids))
        self.compute_metrics = self._entity_scores

    def _entity_scores(self, pred):
        best = pred.predictions.argmax(-1)[:, :-1]
        gold = pred.label_ids[:, 1:]
        answer = gold != -100
        codes = np.isin(gold, self.code_token_ids) & answer
        hit = best == gold
        return {
            "answer_acc": float(hit[answer].mean()),
            "code_acc": float(hit[codes].mean()) if codes.any() else 0.0,
        }
