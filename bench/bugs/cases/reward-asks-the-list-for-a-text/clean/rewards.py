def correct(completions, answer, **kwargs):
    return [float(completion[0]["content"] == gold) for completion, gold in zip(completions, answer)]
