import numpy as np


def _ids_only(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(dim=-1)


def _token_accuracy(pred):
    guesses, labels = pred.predictions[:, :-1], pred.label_ids[:, 1:]
    kept = labels != -100
    return {"token_accuracy": float(np.mean(guesses[kept] == labels[kept]))}


METRICS = {
    "compute_metrics": _token_accuracy,
    "preprocess_logits_for_metrics": _ids_only,
}
