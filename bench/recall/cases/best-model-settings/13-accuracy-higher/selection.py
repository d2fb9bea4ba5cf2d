EVERY = 100


def best_by_accuracy():
    return dict(
        eval_strategy="steps",
        eval_steps=EVERY,
        save_strategy="steps",
        save_steps=2 * EVERY,
        save_total_limit=3,
        load_best_model_at_end=True,
        metric_for_best_model="token_accuracy",
        greater_is_better=True,
    )


def top_tokens(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(-1)


def score(eval_pred):
    guess = eval_pred.predictions[:, :-1]
    gold = eval_pred.label_ids[:, 1:]
    kept = gold != -100
    return {"token_accuracy": float((guess[kept] == gold[kept]).mean())}
