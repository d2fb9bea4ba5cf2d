def first_choice(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(dim=-1)


def align(predictions, labels):
    return predictions[:, :-1], labels[:, 1:]


def token_accuracy(eval_pred):
    predictions, labels = align(eval_pred.predictions, eval_pred.label_ids)
    kept = labels != -100
    return {"token_accuracy": float((predictions[kept] == labels[kept]).mean())}
