SYSTEM = "Answer the trivia question with a name, a place or a number."
ASK = {"add_generation_prompt": True, "padding": True, "return_tensors": "pt", "return_dict": True}


def conversation(row, with_answer=False):
    turns = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}]
    if with_answer:
        turns.append({"role": "assistant", "content": row["answers"][0]})
    return turns
