from datasets import load_dataset

SYSTEM = "You answer for the shop's service desk."


def with_answer(row):
    row["messages"] = [
        {"role": "user", "content": row["question"]},
        {"role": "assistant", "content": row["answer"]},
    ]
    return row


def tidy(row):
    question = " ".join(row["question"].split())
    row["messages"] = [{"role": "user", "content": question}]
    return row


def with_system(row):
    row["messages"] = [{"role": "system", "content": SYSTEM}] + row["messages"]
    return row


def get_rows(path):
    rows = load_dataset("json", data_files=path, split="train")
    for step in (with_answer, tidy, with_system):
        rows = rows.map(step)
    return rows.select_columns(["messages"])
