import sqlite3

from flask import Flask, abort, jsonify, request
from predictor import Predictor

app = Flask(__name__)
app.config.from_prefixed_env("SQLBOT")
app.config.setdefault("MODEL_FOLDER", "models/text2sql")
app.config.setdefault("DATABASE", "shop.db")


def schema():
    con = sqlite3.connect(f"file:{app.config['DATABASE']}?mode=ro", uri=True)
    try:
        return "\n".join(r[0] for r in con.execute("select sql from sqlite_master where type = 'table'"))
    finally:
        con.close()


@app.post("/query")
def query():
    body = request.get_json(force=True)
    question = body.get("question", "").strip()
    if not question:
        abort(400)
    bot = Predictor(app.config["MODEL_FOLDER"])
    statement = bot.sql(schema(), question)
    con = sqlite3.connect(f"file:{app.config['DATABASE']}?mode=ro", uri=True)
    try:
        rows = con.execute(statement).fetchmany(100)
    except sqlite3.Error as err:
        return jsonify(sql=statement, error=str(err)), 422
    finally:
        con.close()
    return jsonify(sql=statement, rows=rows)


if __name__ == "__main__":
    app.run(port=8080)
