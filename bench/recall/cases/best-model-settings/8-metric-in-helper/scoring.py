import numpy as np
from sklearn.metrics import accuracy_score, f1_score


def build(names):
    def fn(pred):
        guess = np.argmax(pred.predictions, axis=-1)
        out = {"accuracy": accuracy_score(pred.label_ids, guess)}
        out["macro_f1"] = f1_score(pred.label_ids, guess, average="macro", labels=list(range(len(names))))
        return out

    return fn
