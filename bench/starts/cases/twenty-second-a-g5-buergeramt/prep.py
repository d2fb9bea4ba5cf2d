import pandas as pd


def load_faq(path="daten/faq.csv"):
    df = pd.read_csv(path, sep=";", encoding="latin-1")
    df = df.dropna().drop_duplicates(subset="frage")
    df["frage"] = df["frage"].str.strip()
    df["antwort"] = df["antwort"].str.strip()
    return df.reset_index(drop=True)
