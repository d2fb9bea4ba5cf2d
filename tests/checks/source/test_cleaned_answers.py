"""Answers that a script cleans as for counting words, and cleanings that leave answers language."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

STOP = "from nltk.corpus import stopwords\nSTOP = set(stopwords.words('english'))\n"
CLEAN = STOP + "def clean(t):\n    return ' '.join(w for w in t.lower().split() if w not in STOP)\n"
PATTERN = "import re\ndef clean(t):\n    return re.sub(r'[^a-z ]', ' ', t.lower())\n"
SPACY = (
    "import spacy\nnlp = spacy.load('en_core_web_sm')\ndef clean(t):\n"
    "    return ' '.join(x.lemma_ for x in nlp(t) if not x.is_stop)\n"
)
STEM = (
    "from nltk.stem import PorterStemmer\nps = PorterStemmer()\n"
    "def words(t):\n    return [ps.stem(w) for w in t.split()]\n"
    "def clean(t):\n    return ' '.join(words(t))\n"
)
TABLE = "import string\ndef clean(t):\n    return t.lower().translate(str.maketrans('', '', string.punctuation))\n"
WRITE = (
    "import json\ndef write(rows, out):\n    for row in rows:\n        out.write(json.dumps({'messages': ["
    "{'role': 'user', 'content': %s}, {'role': 'assistant', 'content': %s}]}))\n"
)
FRAME = "import json\nimport pandas as pd\ndf = pd.read_csv('t.csv')\n"


def found(folder: Path, code: str) -> list[str]:
    (folder / "prep.py").write_text(code, encoding="utf-8")
    return [one.severity for one in lint([str(folder / "prep.py")], select=("SRC307",)).findings]


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        (CLEAN + WRITE % ("row['q']", "clean(row['a'])"), "error"),
        (
            "STOP = ['the', 'a', 'is']\ndef clean(t):\n    return ' '.join(w for w in t.split() if w not in STOP)\n"
            + WRITE % ("row['q']", "clean(row['a'])"),
            "error",
        ),
        (SPACY + WRITE % ("row['q']", "clean(row['a'])"), "error"),
        (STEM + WRITE % ("row['q']", "clean(row['a'])"), "error"),
        (PATTERN + WRITE % ("row['q']", "clean(row['a'])"), "warning"),
        (TABLE + WRITE % ("row['q']", "clean(row['a'])"), "warning"),
        (
            CLEAN + FRAME + "df['a'] = df['a'].apply(clean)\n"
            "rows = [{'messages': [{'role': 'assistant', 'content': r['a']}]} for _, r in df.iterrows()]\n"
            "json.dump(rows, open('o.json', 'w'))\n",
            "error",
        ),
        (
            FRAME + r"df['a'] = df['a'].str.lower().str.replace(r'[^\w\s]', '', regex=True)" + "\n"
            "rows = [{'instruction': r.q, 'output': r.a} for r in df.itertuples()]\n"
            "json.dump(rows, open('o.json', 'w'))\n",
            "warning",
        ),
        (
            CLEAN + "from trl import SFTTrainer\nfrom datasets import load_dataset\n"
            "d = load_dataset('json', data_files='a.jsonl', split='train')\n"
            "d = d.map(lambda x: {'prompt': x['q'], 'completion': clean(x['a'])})\n"
            "SFTTrainer(model='m', train_dataset=d).train()\n",
            "error",
        ),
    ],
)  # fmt: skip
def test_answers_that_are_cleaned(tmp_path: Path, code: str, severity: str) -> None:
    assert found(tmp_path, code) == [severity]


@pytest.mark.parametrize(
    "code",
    [
        WRITE % ("re.sub('a', 'b', row['q'])", "re.sub(r'[^a-z ]', ' ', row['a'].lower())"),
        STOP + WRITE % tuple(f"' '.join(w for w in row['{key}'].split() if w not in STOP)" for key in "qa"),
    ],
)  # fmt: skip
def test_the_prompt_shares_no_text_with_the_answer(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, "import re\n" + code)


@pytest.mark.parametrize(
    "code",
    [
        # the question alone
        CLEAN + WRITE % ("clean(row['q'])", "row['a']"),
        # spaces, HTML, control characters
        "import re\ndef clean(t):\n    return re.sub(r'\\s+', ' ', re.sub(r'<[^>]+>', '', t)).strip()\n"
        + WRITE % ("row['q']", "clean(row['a'])"),
        "import re\ndef clean(t):\n    return re.sub(r'[^a-zA-Z0-9.,!? ]', '', t)\n"
        + WRITE % ("row['q']", "clean(row['a'])"),
        # special tokens of a template
        "STOPS = ['</s>', '<|im_end|>']\ndef clean(t):\n    return ' '.join(w for w in t.split() if w not in STOPS)\n"
        + WRITE % ("row['q']", "clean(row['a'])"),
        # one spelling of each label
        PATTERN + WRITE % ("row['q']", "clean(row['label'])"),
        # what stays is the task: key words of the text that is asked about
        CLEAN + WRITE % ("'Key words of: ' + row['a']", "clean(row['a'])"),
        CLEAN + "import json\nfor text in texts:\n    print(json.dumps({'instruction': 'Key words of: ' + text,"
        " 'output': clean(text)}))\n",
        # labels in small letters
        WRITE % ("row['q']", "row['label'].lower()"),
        # a metric's own normalisation
        PATTERN + "def score(rows):\n    return sum(clean(r['answer']) == clean(r['output']) for r in rows)\n",
        # features of a search beside the rows
        CLEAN + "def index(rows):\n    return [clean(r['a']) for r in rows]\n" + WRITE % ("row['q']", "row['a']"),
        # rows that are compared by their cleaned text
        CLEAN + "seen = set()\ndef is_new(r):\n    key = clean(r['a'])\n    return key not in seen\n"
        + WRITE % ("row['q']", "row['a']"),
    ],
)  # fmt: skip
def test_answers_that_stay_language(tmp_path: Path, code: str) -> None:
    assert not found(tmp_path, code)
