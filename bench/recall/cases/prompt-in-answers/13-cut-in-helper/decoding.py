def only_new(tok, sequences, enc):
    width = enc["input_ids"].shape[1]
    new = sequences[:, width:]
    return [t.strip() for t in tok.batch_decode(new, skip_special_tokens=True)]
