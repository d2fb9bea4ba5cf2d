"""Lines that show a cause of odd metrics, and near misses that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.explaining.guides import GUIDES
from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.rank_causes import _causes_of_guide_and_if_listed
from truetune.troubleshooting.signs import odd_metrics
from truetune.troubleshooting.signs.find_signs_in_statements import (
    find_signs,
    signs_belonging_to_cause_text,
)

TEMPLATE = "text = tok.apply_chat_template(m, tokenize=False, add_generation_prompt=True)\n"
ASK = "enc = tok(prompts, return_tensors='pt', padding=True)\nout = model.generate(**enc)\n"
CLASSES = "print(accuracy_score(gold, answers))\nprint(f1_score(gold, answers))\n"
MEAN_LOSS = "total_loss += loss.item()\n"
JUDGE = "PROMPT = 'You are a judge. Answer A: {a} Answer B: {b}'\n"
WITH_PROCESSES = "dist.init_process_group('nccl')\n"
UNMASKED = "labels = batch['labels']\npred = logits[:, :-1].argmax(-1)\n"
CASES = [
    ("rows of the evaluation are", "val = random.sample(rows, 50)\n", "val = rows[:50]\n"),
    (
        "rows of the evaluation are",
        "train, val = train_test_split(rows)\n",
        "rows = rows.drop_duplicates()\ntrain, val = train_test_split(rows)\n",
    ),
    (
        "rows of the evaluation are",
        "load_dataset('json', data_files={'train': 'all.jsonl', 'test': 'all.jsonl'})\n",
        "load_dataset('json', data_files={'train': 'a.jsonl', 'test': 'b.jsonl'})\n",
    ),
    (
        "rows were repeated",
        "long = frame.explode('variant')\ntest = long.sample(frac=0.1)\n",
        "test = frame.sample(frac=0.1)\n",
    ),
    (
        "rows of one document",
        "chunks = cut(doc)\ntrain, test = train_test_split(chunks)\n",
        "train, test = train_test_split(rows)\n",
    ),
    (
        "a field of the prompt gives",
        'prompt = f\'Queue: {row["queue"]} Text: {row["text"]}\'\n',
        "prompt = f'Text: {row[\"text\"]}'\n",
    ),
    (
        "the benchmark's test rows",
        "data = load_dataset('meta-math/MetaMathQA')\nlm_eval = 'gsm8k'\n",
        "data = load_dataset('json')\nlm_eval = 'gsm8k'\n",
    ),
    ("a part of the rows", "rows = test[:100]\n", "rows = test[1:]\n"),
    ("the best of many checkpoints", "eval_dataset = 'test.jsonl'\n", "eval_dataset = 'v.jsonl'\n"),
    ("rows are divided by hash", "part = hash(text) % 10\n", "part = zlib.crc32(text) % 10\n"),
    (
        "the reference is in the prompt",
        "p = tok.apply_chat_template(row['messages'], add_generation_prompt=True)\n",
        "p = tok.apply_chat_template(row['messages'][:-1], add_generation_prompt=True)\n",
    ),
    (
        "the scoring script looks for a mark",
        'regex_pattern: "#### (-?[0-9]+)"\n',
        'regex_pattern: "([0-9]+)"\n',
    ),
    (
        "the parser does not read",
        "m = re.search(pattern, text)\ncorrect += bool(m)\n",
        "m = re.search(pattern, text)\n",
    ),
    ("the first capital letter", "m = re.search(r'[A-D]', text)\n", "m = re.search(r'x', text)\n"),
    ("a pattern takes the first", "n = re.search(r'\\d+', text)\n", "n = re.search(r'x', text)\n"),
    (
        "the parser reads anything",
        "n = re.findall(r'\\d+', text)\ncorrect += n == gold\n",
        "n = json.loads(text)\ncorrect += n == gold\n",
    ),
    ("the reference is searched", "ok = row['label'] in row['prediction']\n", "ok = label == p\n"),
    (
        "exact match compares",
        "hits += row['output'].strip() == row['gold'].strip()\n",
        "hits += row['output'].lower() == row['gold'].lower()\n",
    ),
    (
        "references are numbers",
        "hits += pred == row['answer']\n",
        "hits += float(pred) == float(row['answer'])\n",
    ),
    (
        "the model thinks",
        "name = 'Qwen/Qwen3-4B'\nout = model.generate(**enc)\n",
        "name = 'Qwen/Qwen3-4B'\nanswer = out.split('</think>')\nout = model.generate(**enc)\n",
    ),
    (
        "code or JSON is between",
        "value = json.loads(answer)\n",
        "value = json.loads(answer.strip('```'))\n",
    ),
    (
        "no valid JSON are skipped",
        "try:\n    a = json.loads(x)\nexcept ValueError:\n    continue\n",
        "try:\n    a = float(x)\nexcept ValueError:\n    continue\n",
    ),
    (
        "whose answer can't be parsed",
        "for x in rows:\n    if pred is None:\n        continue\n",
        "for x in rows:\n    if pred is None:\n        total += 1\n",
    ),
    (
        "the score of extracted fields",
        "for name, value in pred.items():\n    n += 1\n",
        "for name, value in gold.items():\n    n += 1\n",
    ),
    (
        "special tokens are in",
        ASK + "print(tok.decode(out[0]))\n",
        ASK + "print(tok.decode(out[0], skip_special_tokens=True))\n",
    ),
    (
        "the prompt was decoded",
        ASK + "texts = tok.batch_decode(out)\n",
        ASK + "texts = tok.batch_decode(out[:, enc.input_ids.shape[1]:])\n",
    ),
    (
        "evaluated without the chat template",
        "lm_eval --model hf --tasks gsm8k\n",
        "lm_eval --model hf --tasks gsm8k --apply_chat_template\n",
    ),
    ("evaluated without the chat template", ASK, TEMPLATE + ASK),
    (
        "tokenized with special tokens again",
        TEMPLATE + "enc = tok(text)\n",
        TEMPLATE + "enc = tok(text, add_special_tokens=False)\n",
    ),
    (
        "long prompts are truncated",
        "enc = tok(p, truncation=True)\nmodel.generate(**enc)\n",
        "enc = tok(p, truncation=True)\nmodel(**enc)\n",
    ),
    ("long prompts are truncated", "PARAMETER num_ctx 2048\n", "PARAMETER num_ctx 32768\n"),
    (
        "answers were cut off",
        "max_new_tokens: 128\nmetric: accuracy\n",
        "max_new_tokens: 2048\nmetric: accuracy\n",
    ),
    (
        "answers were cut off",
        "p.add_argument('--max_new_tokens', type=int, default=64)\naccuracy = 1\n",
        "p.add_argument('--max_new_tokens', type=int, default=4096)\naccuracy = 1\n",
    ),
    ("a stop string", "until: ['\\n']\n", "until: ['<|im_end|>']\n"),
    (
        "answers are sampled",
        "do_sample: true\naccuracy: 0.4\n",
        "do_sample: false\naccuracy: 0.4\n",
    ),
    ("padded on the right", ASK, "tok.padding_side = 'left'\n" + ASK),
    (
        "with a placeholder",
        "PROMPT = 'Question: {question} Answer:'\n",
        "PROMPT = 'Question: {question}'\ntext = PROMPT.format(question=q)\n",
    ),
    ("a classifier has one output", "num_labels: 1\n", "num_labels: 12\n"),
    ("the penalty on repetition", "repetition_penalty: 1.15\n", "repetition_penalty: 1.0\n"),
    (
        "shifted by one",
        "labels = batch['labels']\nguess = torch.max(out.logits, dim=-1).indices\n",
        UNMASKED,
    ),
    (
        "the label -100",
        UNMASKED + "hits = (pred == labels).sum()\n",
        UNMASKED + "keep = labels != -100\nhits = (pred == labels).sum()\n",
    ),
    ("hold -100", "t = tok.batch_decode(labels)\n", "t = tok.batch_decode(answers)\n"),
    (
        "the metric scores logits",
        "rouge = load('rouge')\nids = logits.argmax(-1)\n",
        "rouge = load('rouge')\nids = model.generate(x)\n",
    ),
    ("token accuracy is measured", "{'mean_token_accuracy': 0.95}\n", "{'accuracy': 0.95}\n"),
    (
        "multiple choice are one token",
        "ids = [tok.encode(c)[0] for c in 'ABCD']\n",
        "ids = [tok.encode(c)[:4] for c in names]\n",
    ),
    (
        "a threshold for probabilities",
        "labels = logits > 0.5\n",
        "labels = torch.sigmoid(logits) > 0.5\n",
    ),
    (
        "the score of the other class",
        "p = softmax(logits)[:, 0]\n",
        "p = softmax(logits)[:, 1]\n",
    ),
    (
        "the area under a curve",
        "auc = roc_auc_score(y, logits.argmax(-1))\n",
        "auc = roc_auc_score(y, probs)\n",
    ),
    (
        "in each other's place",
        "f1_score(preds, gold)\n",
        "f1_score(gold, preds)\n",
    ),
    (
        "called macro",
        "macro = f1_score(gold, pred, average='micro')\n",
        "f1 = f1_score(gold, pred, average='binary')\n",
    ),
    ("one class is most", CLASSES, CLASSES + "w = compute_class_weight(y)\nclass_weight = w\n"),
    ("one class is nearly everything", "seqeval = load('seqeval')\n", "f1 = load('f1')\n"),
    (
        "label names are exchanged",
        "labels = list(set(frame.intent))\naccuracy = 1\n",
        "labels = [-100] * n\naccuracy = 1\n",
    ),
    (
        "the classifier's pad_token_id",
        "m = AutoModelForSequenceClassification.from_pretrained(p)\n",
        "m = AutoModelForSequenceClassification.from_pretrained(p)\nm.config.pad_token_id = 0\n",
    ),
    (
        "corpus_bleu takes",
        "bleu = sacrebleu.corpus_bleu(hyp, ref)\n",
        "bleu = sacrebleu.corpus_bleu(hyp, [ref])\n",
    ),
    ("ROUGE's default", "r = load('rouge')\nlang = 'ja'\n", "r = load('rouge')\nlang = 'en'\n"),
    ("the mean of exp", "ppls.append(math.exp(loss))\n", "ppl = math.exp(total / n)\n"),
    (
        "a strided perplexity",
        "for i in range(0, n, stride):\n    nll += model(x)\nppl = torch.exp(nll)\n",
        "for i in range(0, n, stride):\n    t[:, :k] = -100\nppl = torch.exp(nll)\n",
    ),
    (
        "perplexity script are a copy",
        "e = tok(t, padding=True)\nlabels = e.input_ids.clone()\n",
        "e = tok(t, padding=True)\nlabels = e.input_ids.clone()\nlabels[pad] = -100\n",
    ),
    ("over other tokens", "ppl = math.exp(loss)\n", "rate = math.exp(x)\n"),
    (
        "computes in float16",
        "model: google/gemma-2-2b\nfp16_full_eval: true\n",
        "model: gpt2\nfp16_full_eval: true\n",
    ),
    (
        "the sandbox could not run",
        "bench = 'humaneval'\nrun(code, timeout=3)\n",
        "requests.get(url, timeout=3)\n",
    ),
    ("prefers a place", JUDGE, JUDGE + "a, b = swap(a, b)\n"),
    ("prefers long answers", JUDGE, "PROMPT = 'Answer shortly.'\n"),
    (
        "requests to the judge that fail",
        "try:\n    ask()\nexcept Exception:\n    return 5.0\n",
        "try:\n    ask()\nexcept Exception:\n    raise\n",
    ),
    (
        "not in the order of the references",
        "rows.sort(key=len)\nfor p, r in zip(preds, refs):\n    pass\n",
        "for p, r in zip(preds, refs):\n    pass\n",
    ),
    (
        "num_return_sequences gives",
        "out = model.generate(x, num_return_sequences=4)\n",
        "out = model.generate(x, num_return_sequences=4).view(n, 4)\n",
    ),
    (
        "divided by another count",
        "correct += ok\nacc = correct / len(val_loader)\n",
        "correct += ok\nacc = correct / len(rows)\n",
    ),
    (
        "assigned and not added up",
        "for b in loader:\n    correct = (pred == y).sum()\n",
        "for b in loader:\n    correct += (pred == y).sum()\n",
    ),
    (
        "the evaluation depends on its batch size",
        "model.eval()\n" + MEAN_LOSS,
        "model.eval()\nn_tokens += n\n" + MEAN_LOSS,
    ),
    (
        "the sum of the micro-batches",
        "accum = 8\n" + MEAN_LOSS,
        "accum = 8\nloss = loss / accum\n" + MEAN_LOSS,
    ),
    ("logged after it was divided", "loss = loss / accum\n", "loss = loss / total\n"),
    (
        "dropout is on",
        "attention_dropout: 0.1\neval_strategy: epoch\n",
        "attention_dropout: 0.0\neval_strategy: epoch\n",
    ),
    (
        "is not called",
        "with torch.no_grad():\n    loss = model(**b).loss\n",
        "model.eval()\nwith torch.no_grad():\n    loss = model(**b).loss\n",
    ),
    (
        "that of one process",
        WITH_PROCESSES + "if rank == 0:\n    print(loss)\n",
        WITH_PROCESSES + "dist.all_reduce(loss)\nif rank == 0:\n    print(loss)\n",
    ),
    (
        "every process writes",
        WITH_PROCESSES + "f = open('preds.jsonl', 'w')\n",
        WITH_PROCESSES + "f = open(f'preds-{rank}.jsonl', 'w')\n",
    ),
    ("gathered process by process", "mine = rows[rank::world]\n", "mine = rows[start:end]\n"),
    (
        "processes gather the rows",
        "preds = accelerator.gather(preds)\n",
        "preds = accelerator.gather_for_metrics(preds)\n",
    ),
    ("write into one log", "export WANDB_RUN_ID=abc\n", "export WANDB_PROJECT=abc\n"),
    (
        "not what is trained",
        "m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n",
        "m = AutoModelForCausalLM.from_pretrained('out')\nm = PeftModel(m)\n",
    ),
    (
        "come from one model",
        "llm = LLM(base, enable_lora=True)\n",
        "llm = LLM(base, enable_lora=True)\nllm.generate(p, lora_request=a)\n",
    ),
    (
        "not what is deployed",
        "llama-quantize a.gguf b.gguf Q4_K_M\n",
        "python convert.py out\n",
    ),
    (
        "the script loads a path",
        "p.add_argument('--ckpt')\nm = AutoModel.from_pretrained('out/step-100')\n",
        "p.add_argument('--ckpt')\nm = AutoModel.from_pretrained(args.ckpt)\n",
    ),
    (
        "a file of an earlier model",
        "if Path('preds.jsonl').exists():\n    load()\n",
        "if Path('x').is_dir():\n    load()\n",
    ),
    (
        "took away what the base could",
        "num_train_epochs: 10\nlm_eval: mmlu\n",
        "num_train_epochs: 2\nlm_eval: mmlu\n",
    ),
    (
        "measured in two ways",
        "lm_eval --model hf --limit 100\n",
        "lm_eval --model hf\n",
    ),
    ("losses of two runs", "assistant_only_loss: true\n", "learning_rate: 1e-4\n"),
    ("packed rows are longer", "packing: true\n", "packing: true\neval_packing: false\n"),
    ("in the wrong direction", "greater_is_better: false\n", "eval_strategy: epoch\n"),
    (
        "labelled in another way",
        "val = raw_val.map(encode_eval)\n",
        "ds = raw.map(encode)\n",
    ),
    ("each row is mostly", "train_on_inputs: true\n", "train_on_inputs: false\n"),
    (
        "evaluation without a label",
        "max_length: 256\ncompletion_only_loss: true\n",
        "max_length: 4096\ncompletion_only_loss: true\n",
    ),
    ("evaluation without a label", "{'eval_loss': 'nan'}\n", "{'eval_loss': '1.2'}\n"),
    (
        "by their position",
        "def r(completions):\n    return [f(c, GOLD[i]) for i, c in enumerate(completions)]\n",
        "def r(completions, answer):\n    return [f(c, a) for c, a in pairs]\n",
    ),
    (
        "by their position",
        "def r(completions):\n    return [len(c) for c in completions]\n",
        "def r(completions):\n    return [len(c[0]['content']) for c in completions]\n",
    ),
]


def shown(text: str) -> set[str]:
    found = find_signs([ProjectText(Path("a.py"), text, True)])
    return {sign.words for sign in found if sign in odd_metrics.SIGNS}


def is_shown(cause: str, text: str) -> bool:
    causes = [one for guide in GUIDES for one, _ in _causes_of_guide_and_if_listed(guide.name)]
    texts = {one.text for one in causes if cause in one.text}
    assert texts, cause
    found = shown(text)
    return any(sign.words in found for one in texts for sign in signs_belonging_to_cause_text(one))


@pytest.mark.parametrize(("cause", "text", "near_miss"), CASES)
def test_a_line_shows_a_cause_and_a_near_miss_does_not(
    cause: str, text: str, near_miss: str
) -> None:
    assert is_shown(cause, text)
    assert not is_shown(cause, near_miss)


def test_each_sign_is_tested() -> None:
    tested = {words for _, text, _ in CASES for words in shown(text)}
    assert [sign.words for sign in odd_metrics.SIGNS if sign.words not in tested] == []
