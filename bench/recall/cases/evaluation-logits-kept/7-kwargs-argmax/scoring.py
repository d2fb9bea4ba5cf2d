def _argmax(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(dim=-1)


def _accuracy(pred):
    guess, gold = pred.predictions[:, :-1], pred.label_ids[:, 1:]
    keep = gold != -100
    return {"token_accuracy": float((guess[keep] == gold[keep]).mean())}


def metric_kwargs():
    return {"compute_metrics": _accuracy, "preprocess_logits_for_metrics": _argmax}
