def correct(completions, answer, **kwargs):
    return [float(completion == gold) for completion, gold in zip(completions, answer)]
