"""Lines that show why answers are garbage, never end, or are bad where they are served, and near misses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from truetune.checks.explaining.guides import GUIDES
from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.rank_causes import _causes_of_guide_and_if_listed
from truetune.troubleshooting.signs.find_signs_in_statements import find_signs
from truetune.troubleshooting.signs.garbage_or_endless_answers import SIGNS

ASK = "out = model.generate(**batch, max_new_tokens=300)\n"
TRAIN = "trainer = Trainer(model, args, train_dataset=rows)\n"
CHATS = 'row = {"messages": [{"role": "user", "content": q}]}\n'
OWN_LOOP = "model = AutoModelForCausalLM.from_pretrained(base)\nloss.backward()\n"


def shows(text: str, cause: str, name: str = "a.py") -> bool:
    """Does a text of one file, or several after `== name`, show a cause?"""
    parts = re.split(r"^== (\S+)\n", text, flags=re.M)
    named = zip(parts[1::2], parts[2::2], strict=True) if len(parts) > 1 else [(name, text)]
    texts = [ProjectText(Path(file), content, True) for file, content in named]
    return any(re.search(sign.words, cause) for sign in find_signs(texts) if sign in SIGNS)


# Cause, a text that shows it, a near miss that does not.
ROWS = [
    (
        "apply_chat_template was called without",
        f"p = tok.apply_chat_template(msgs, tokenize=False)\n{ASK}",
        f"p = tok.apply_chat_template(msgs, tokenize=False, add_generation_prompt=True)\n{ASK}",
    ),
    (
        "the client sends the bare question",
        f"r = client.completions.create(model=m, prompt=q, max_tokens=300)\n{CHATS}",
        f"r = client.chat.completions.create(model=m, messages=q, max_tokens=300)\n{CHATS}",
    ),
    (
        "a chat model is asked with a bare text",
        f'name = "Qwen/Qwen2.5-7B-Instruct"\nx = tok(q, return_tensors="pt")\n{ASK}',
        f'name = "Qwen/Qwen2.5-7B"\nx = tok(q, return_tensors="pt")\n{ASK}',
    ),
    (
        "the prompt differs from the one in training",
        f'prompt = f"### Instruction:\\n{{q}}\\n### Response:\\n"\n{ASK}',
        f'prompt = f"### Instruction:\\n{{q}}\\n### Response:\\n"\n{TRAIN}',
    ),
    (
        "the training rows begin with a system prompt",
        f"msgs = history[-6:]\n{ASK}",
        f"last = history[-1]\n{ASK}",
    ),
    (
        "the training rows begin with a system prompt",
        '== train.py\nr = [{"role": "system", "content": S}] + r\n'
        f'== api.py\nm = [{{"role": "user", "content": q}}]\n{ASK}',
        f'== train.py\nr = rows[0]\n== api.py\nm = [{{"role": "user", "content": q}}]\n{ASK}',
    ),
    ("the model is trained with reasoning off", "enable_thinking: false\n", "think_about: it\n"),
    (
        "text rendered by the chat template is tokenized",
        "text = tok.apply_chat_template(m, tokenize=False)\nids = tok(text, return_tensors='pt')\n",
        "text = tok.apply_chat_template(m, tokenize=False)\n"
        "ids = tok(text, return_tensors='pt', add_special_tokens=False)\n",
    ),
    (
        "the result of `apply_chat_template` is taken for a list",
        "ids = tok.apply_chat_template(msgs)\n",
        "ids = tok.apply_chat_template(msgs, return_dict=False)\n",
    ),
    (
        "a prompt reaches the model with a placeholder",
        f'P = "Answer this: {{question}}"\n{ASK}',
        f'P = "Answer this: {{question}}"\nx = P.format(question=q)\n{ASK}',
    ),
    ("the tokenizer appends EOS to the prompts", "add_eos_token=True\n", "add_eos_token=False\n"),
    (
        "a prompt in Gemma's chat format is encoded",
        'p = "<start_of_turn>user"\nx = tok(p, add_special_tokens=False)\n',
        'p = "<bos><start_of_turn>user"\nx = tok(p, add_special_tokens=False)\n',
    ),
    (
        "a multilingual translation model",
        f'm = "facebook/nllb-200-distilled-600M"\n{ASK}',
        'm = "facebook/nllb-200-distilled-600M"\nout = model.generate(x, forced_bos_token_id=i)\n',
    ),
    (
        "the answers were not what was supervised",
        "train_on_inputs: true\n",
        "train_on_inputs: false\n",
    ),
    (
        "the roles are exchanged",
        'm = [{"role": "user", "content": row["answer"]}]\n',
        'm = [{"role": "user", "content": row["question"]}]\n',
    ),
    ("the roles are exchanged", "assistant: [customer, human]\n", "assistant: [agent, gpt]\n"),
    (
        "labels are shifted twice",
        "labels = ids[:, 1:]\nloss = model(input_ids=ids[:, :-1], labels=labels).loss\n",
        "labels = ids[:, 1:]\nlogits = model(ids).logits[:, :-1]\nloss = F.cross_entropy(logits, labels)\n",
    ),
    (
        "a custom loss of a causal model compares",
        f"loss = F.cross_entropy(logits.view(-1, v), y.view(-1))\n{OWN_LOOP}",
        f"loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), y[:, 1:].flatten())\n{OWN_LOOP}",
    ),
    (
        "a loss is given scores on another scale",
        "p = logits.softmax(-1)\nloss = F.cross_entropy(p, y)\n",
        "p = logits.log_softmax(-1)\nloss = F.nll_loss(p, y)\n",
    ),
    (
        "a hand-written attention mask has no causal part",
        "mask = seg[:, None] == seg[None, :]\n",
        "mask = (seg[:, None] == seg[None, :]).tril()\n",
    ),
    ("several rows share a sequence of the batch", "sample_packing: true\n", "sample_packing: false\n"),
    (
        "labels are a plain copy of padded",
        'e = tok(t, padding="max_length")\ne["labels"] = e["input_ids"].copy()\n',
        'e = tok(t, padding="max_length")\ne["labels"] = [-100] * 9\n',
    ),
    (
        "labels are padded with the pad token",
        "labels = pad_sequence(ys, batch_first=True, padding_value=0)\n",
        "labels = pad_sequence(ys, batch_first=True, padding_value=-100)\n",
    ),
    (
        "the label mask is inverted",
        "labels = p + [-100] * len(answer_ids)\n",
        "labels = [-100] * len(prompt_ids) + a\n",
    ),
    (
        "labels are counted off from the end",
        "labels[:-len(answer)] = -100\n",
        "labels[:len(prompt)] = -100\n",
    ),
    (
        "a large part of the training answers is in another language",
        "dataset: alpaca_gpt4_zh\n",
        "dataset: alpaca_gpt4_en\n",
    ),
    (
        "an instruct model was trained on raw texts",
        "model: Qwen/Qwen2.5-7B-Instruct\nstage: pt\n",
        "model: Qwen/Qwen2.5-7B-Instruct\nstage: sft\n",
    ),
    ("the texts were taken from PDF files", "import pdfplumber\n", "import docx\n"),
    (
        "the rows hold it",
        'f = open("a.csv", encoding="latin-1")\n',
        'f = open("a.csv", encoding="utf-8")\n',
    ),
    ("the rows hold it", '"output": "so&nbsp;it is"\n', '"output": "so it is"\n'),
    (
        "the rows hold it",
        'r = {"content": "[INST] " + q}\n',
        'r = {"content": q}\n',
    ),
    (
        "answers are paired with the questions of other rows",
        "rows = pd.concat([questions, answers], axis=1)\n",
        "rows = questions.merge(answers, on='id')\n",
    ),
    (
        "the answers of training rows are cleaned",
        'a = row["a"].lower()\nout = {"messages": a}\n',
        'a = row["a"].strip()\nout = {"messages": a}\n',
    ),
    (
        "a script writes answers that should be JSON as Python",
        'r = {"content": str(fields)}\n',
        'r = {"content": json.dumps(fields)}\n',
    ),
    (
        "rows are transformed, but the result is discarded",
        "ds.filter(keep)\n",
        "ds = ds.filter(keep)\n",
    ),
    (
        "a function that is written for one row is mapped with",
        "def f(r):\n    return {'text': f'{r[\"q\"]} {r[\"a\"]}'}\nds = ds.map(f, batched=True)\n",
        "def f(r):\n    return {'text': f'{r[\"q\"]} {r[\"a\"]}'}\nds = ds.map(f)\n",
    ),
    (
        "prompts and completions are plain strings",
        'm = "Qwen/Qwen2.5-7B-Instruct"\nr = {"prompt": q, "completion": a}\n',
        'm = "Qwen/Qwen2.5-7B"\nr = {"prompt": q, "completion": a}\n',
    ),
    (
        "answers break off: unclosed reasoning",
        "cutoff_len: 2048\ntemplate: '<think>'\n",
        "cutoff_len: 2048\ntemplate: qwen\n",
    ),
    (
        "the stop token is masked",
        "tok.pad_token = tok.eos_token\nlabels[labels == tok.pad_token_id] = -100\n",
        "tok.pad_token = '<pad>'\nlabels[labels == tok.pad_token_id] = -100\n",
    ),
    (
        "the pad token is EOS",
        "tok.pad_token = tok.eos_token\nc = DataCollatorForLanguageModeling(tok, mlm=False)\n",
        "tok.pad_token = tok.eos_token\nc = DataCollatorForSeq2Seq(tok)\n",
    ),
    (
        "no stop token is in the rows",
        f"text = f'### Question: {{q}} ### Answer: {{answer}}'\n{TRAIN}",
        f"text = f'### Question: {{q}} ### Answer: {{answer}}' + tok.eos_token\n{TRAIN}",
    ),
    (
        "no stop token is in the rows",
        "a = tok(answer, add_special_tokens=False).input_ids\nlabels = [-100] * n + a\n",
        "a = tok(answer, add_special_tokens=False).input_ids + [tok.eos_token_id]\nlabels = [-100] * n + a\n",
    ),
    ("no stop token is in the rows", "train_on_eos: none\n", "train_on_eos: turn\n"),
    (
        "a few turns of dialogue are one text",
        "text = '\\n'.join(turns) + '</s>'\n",
        "text = '</s>\\n'.join(turns)\n",
    ),
    (
        "most rows lose their end",
        f"enc = tok(t, truncation=True, max_length=256)\n{TRAIN}",
        f"enc = tok(t, truncation=True, max_length=4096)\n{TRAIN}",
    ),
    ("most rows lose their end", "args = SFTConfig('out')\n", "args = SFTConfig('out', max_length=None)\n"),
    (
        "stopping is switched off",
        'extra = {"ignore_eos": True}\n',
        'extra = {"ignore_eos": False}\n',
    ),
    (
        "the server stops at another token",
        "p = SamplingParams(max_tokens=9, stop_token_ids=[2])\nllm = LLM(m)\n",
        "p = SamplingParams(max_tokens=9)\nllm = LLM(m)\n",
    ),
    (
        "turn markers are added as plain tokens",
        'tok.add_tokens(["<|im_start|>"])\n',
        'tok.add_tokens(["<|im_start|>"], special_tokens=True)\n',
    ),
    (
        "the weights are not those that were trained",
        "model.load_state_dict(state, strict=False)\n",
        "model.load_state_dict(state)\n",
    ),
    (
        "weights are missing in what is loaded",
        "fsdp_state_dict_type: SHARDED_STATE_DICT\n",
        "fsdp_state_dict_type: FULL_STATE_DICT\n",
    ),
    (
        "weights are missing in what is loaded",
        '"hidden_size": 896,\n"tie_word_embeddings": false,\n',
        '"hidden_size": 4096,\n"tie_word_embeddings": false,\n',
    ),
    (
        "weights are missing in what is loaded",
        "Some weights were newly initialized: ['lm_head.weight']\n",
        "Some weights were newly initialized: ['score.weight']\n",
    ),
    (
        "an adapter is loaded on another base model",
        "model = PeftModel.from_pretrained(base, 'lora-out')\n",
        "model = AutoModelForCausalLM.from_pretrained('base')\n",
    ),
    (
        "the model that merge_and_unload returns is thrown away",
        "model.merge_and_unload()\n",
        "model = model.merge_and_unload()\n",
    ),
    (
        "a server loads an adapter on weights into which it was already merged",
        "vllm serve out/merged --lora-modules a=out\n",
        "vllm serve base --lora-modules a=out\n",
    ),
    (
        "a model that has an adapter is wrapped",
        "m = PeftModel.from_pretrained(m, a)\nm = get_peft_model(m, c)\n",
        "m = get_peft_model(m, c)\n",
    ),
    (
        "the learning rate destroyed the weights",
        'p.add_argument("--lr", type=float, default=2e-3)\n',
        'p.add_argument("--lr", type=float, default=2e-5)\n',
    ),
    ("the learning rate destroyed the weights", "learning_rate: 0.0002\n", "learning_rate: 0.0002\nlora_r: 8\n"),
    (
        "the learning rate destroyed the weights",
        "{'loss': 1.4}\n{'loss': 7.9}\n",
        "{'loss': 1.4}\n{'loss': 0.9}\n",
    ),
    ("too many epochs on few rows", "num_train_epochs: 20\n", "num_train_epochs: 3\n"),
    (
        "marks of the chat template were never trained",
        "tok.add_special_tokens({'additional_special_tokens': tags})\nc = LoraConfig(r=8)\n",
        "tok.add_special_tokens({'pad_token': '<pad>'})\nc = LoraConfig(r=8)\n",
    ),
    (
        "marks of the chat template were never trained",
        "base_model: meta-llama/Meta-Llama-3-8B\nchat_template: llama3\n",
        "base_model: meta-llama/Meta-Llama-3-8B-Instruct\nchat_template: llama3\n",
    ),
    (
        "tokens that the training added are not in the tokenizer that asks",
        f"== train.py\ntok.add_tokens(tags)\n== ask.py\ntok = AutoTokenizer.from_pretrained(base)\n{ASK}",
        f"== train.py\ntok.save_pretrained(out)\n== ask.py\ntok = AutoTokenizer.from_pretrained(base)\n{ASK}",
    ),
    (
        "tokens are added to the tokenizer, but the model's",
        "tok.add_tokens(tags)\n",
        "tok.add_tokens(tags)\nmodel.resize_token_embeddings(len(tok))\n",
    ),
    (
        "the embedding is resized to the tokenizer's length",
        "model.resize_token_embeddings(len(tok))\n",
        "tok.add_tokens(tags)\nmodel.resize_token_embeddings(len(tok))\n",
    ),
    (
        "the tokenizer is not the model's",
        "vllm serve out/merged --tokenizer meta-llama/Llama-2-7b\n",
        "vllm serve out/merged --tokenizer-mode auto\n",
    ),
    (
        "a vLLM server runs with random",
        "vllm serve m --load-format dummy\n",
        "vllm serve m --load-format auto\n",
    ),
    (
        "a model generates in float16",
        f"model = M.from_pretrained(p, torch_dtype=torch.float16)\n{ASK}",
        f"model = M.from_pretrained(p, torch_dtype=torch.bfloat16)\n{ASK}",
    ),
    (
        "the converted model computes NaN",
        "python convert.py m --outtype f16\n",
        "python convert.py m --outtype bf16\n",
    ),
    ("the GGUF is quantized too coarsely", "FROM ./a-q2_k.gguf\n", "FROM ./a-q8_0.gguf\n"),
    (
        "the adapter was merged into 4-bit weights",
        "b = BitsAndBytesConfig(load_in_4bit=True)\nm = m.merge_and_unload()\n",
        "m = m.merge_and_unload()\n",
    ),
    (
        "prompts are longer than the model",
        "vllm serve m --max-model-len 65536\n",
        "vllm serve m --max-model-len 8192\n",
    ),
    (
        "an adapter is merged, loaded",
        "rope_scaling: linear\n",
        '"rope_scaling": null,\n',
    ),
    ("some engines do not read how this adapter", "use_rslora=True\n", "use_rslora=False\n"),
    ("an adapter with DoRA is served", "use_dora=True\n", "use_dora=False\n"),
    (
        "the answers are drawn at a high temperature",
        "    temperature: float = 1.8\n",
        "    temperature: float = 0.8\n",
    ),
    (
        "repetition_penalty or no_repeat_ngram_size forbids",
        "repetition_penalty=1.3\n",
        "repetition_penalty=1.0\n",
    ),
    (
        "batches of prompts are padded on the right",
        f"x = tok(prompts, padding=True, return_tensors='pt')\n{ASK}",
        f"tok.padding_side = 'left'\nx = tok(prompts, padding=True, return_tensors='pt')\n{ASK}",
    ),
    (
        "ids are given to generate without",
        "import transformers\no = model.generate(ids, max_new_tokens=9)\n",
        "import transformers\no = model.generate(ids, attention_mask=m, max_new_tokens=9)\n",
    ),
    (
        "prompts are cut on the right",
        f"x = tok(p, truncation=True, max_length=512)\n{ASK}",
        f"tok.truncation_side = 'left'\nx = tok(p, truncation=True, max_length=512)\n{ASK}",
    ),
    (
        "a completion was asked for without max_tokens",
        "from vllm import SamplingParams\np = SamplingParams(temperature=0)\n",
        "from vllm import SamplingParams\np = SamplingParams(temperature=0, max_tokens=300)\n",
    ),
    (
        "answers are limited to fewer tokens",
        "o = model.generate(x, max_new_tokens=20)\n",
        "o = model.generate(x, max_new_tokens=500)\n",
    ),
    (
        "a stop string is inside the answers",
        'stop=["\\n"]\n',
        'stop=["<|im_end|>"]\n',
    ),
    (
        "Ollama cuts prompts at num_ctx",
        "FROM ./a.gguf\nPARAMETER num_ctx 1024\n",
        "FROM ./a.gguf\nPARAMETER num_ctx 16384\n",
    ),
    (
        "each token is decoded alone",
        "print(tok.decode([next_id]), end='')\n",
        "print(tok.decode(ids))\n",
    ),
    (
        "generate returns the prompt's ids before the answer",
        f"{ASK}print(tok.decode(out[0], skip_special_tokens=True))\n",
        f"{ASK}print(tok.decode(out[0][x.shape[1]:], skip_special_tokens=True))\n",
    ),
    (
        "a client asks a server for the base",
        '== serve.sh\nvllm serve b --lora-modules a=out\n== ask.py\n'
        'r = client.chat.completions.create(model="Qwen/Qwen2.5-7B", messages=m)\n',
        '== serve.sh\nvllm serve b --lora-modules a=out\n== ask.py\n'
        'r = client.chat.completions.create(model="a", messages=m)\n',
    ),
    (
        "Ollama has no TEMPLATE",
        "FROM ./a.gguf\nPARAMETER temperature 0.2\n",
        "PARAMETER temperature 0.2\n",
    ),
    (
        "Ollama serves the file of an earlier run",
        "ollama create bot -f Modelfile\n",
        "ollama run bot\n",
    ),
    (
        "trained with one chat template and served with another",
        "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\ntemplate: llama3\n",
        "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\ntemplate: qwen\n",
    ),
    (
        "what is merged or served is another adapter",
        "adapter_name_or_path: saves/sft\n",
        "output_dir: saves/sft\n",
    ),
    (
        "rows came tokenized, without labels",
        "ds = load_from_disk('tok')\n",
        "ds = load_from_disk('tok')\nkeep = ['input_ids', 'labels']\n",
    ),
    (
        "labels are made with care, and the collator",
        "labels[:n] = -100\nc = DataCollatorForLanguageModeling(tok, mlm=False)\n",
        "labels[:n] = -100\nc = DataCollatorForSeq2Seq(tok)\n",
    ),
    (
        "a cache of another template or tokenizer",
        "if os.path.exists(CACHE):\n    rows = pickle.load(f)\n",
        "if os.path.exists(OUT):\n    shutil.rmtree(OUT)\n",
    ),
    (
        "padding stored in tokenized rows",
        "e = tok(t, padding='max_length')\nds = load_from_disk(p)\n",
        "e = tok(t)\nds = load_from_disk(p)\n",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text", "near_miss"), ROWS)
def test_a_line_shows_a_cause_and_a_near_miss_does_not(
    cause: str, text: str, near_miss: str
) -> None:
    assert shows(text, cause)
    assert not shows(near_miss, cause)


def test_each_alternative_of_a_sign_names_a_cause() -> None:
    texts = [
        cause.text for guide in GUIDES for cause, _ in _causes_of_guide_and_if_listed(guide.name)
    ]
    parts = {part for sign in SIGNS for part in re.split(r"\|(?=\^)", sign.words)}
    assert [part for part in parts if not any(re.search(part, text) for text in texts)] == []
