import sqlite3


def run(sql, path="shop.sqlite"):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        return sorted(map(repr, db.execute(sql).fetchall()))


def same_result(a, b):
    try:
        return run(a.strip().strip("`").removeprefix("sql")) == run(b)
    except sqlite3.Error:
        return False
