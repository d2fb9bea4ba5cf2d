"""Statements that show what lets nothing be learned, each with a near miss that does not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.rank_causes import _causes_of_guide_and_if_listed
from truetune.troubleshooting.signs.find_signs_in_statements import (
    find_signs,
    signs_belonging_to_cause_text,
)
from truetune.troubleshooting.signs.nothing_learned import SIGNS
from truetune.troubleshooting.split_files_into_statements import MAX_STATEMENT_CHARACTERS

GUIDE = "nothing-is-learned"
NO_TEXT_SHOWS = (
    # These are in the commands and settings of a project alone, which nobody retells.
    "weights of a merge are at a place",
    "the weights of a merge leave a model out",
    "a resumed run starts its optimizer",
    "a loop over a hyperparameter trains every time",
    "each pass of a loop, or each job of an array",
    "a command uses the weights of a training that still runs",
    "a container writes the trained weights into itself",
    "a fine-tuning by Megatron-LM takes over",
    "the learning rate of a Megatron-LM run falls",
    "a script sets a hyperparameter as a variable",
    # Only values show these: of rows beside their loss, of stored predictions, or of a model's own folder.
    "stored predictions of a teacher",
    "all pairs of an embedding model or reranker",
    "scores of pairs are on another scale",
    "columns are in another order than the loss",
    "a contrastive training gets one text for each query",
    "answers are rewarded by a model whose score head",
    "teacher and student of a distillation have different vocabularies",
    # A line alone does not say which of two models it puts into training mode.
    "the teacher of a distillation is put into training mode",
    # These are seen in the rows and their pictures alone.
    "rows have more or fewer pictures than places",
    "pictures of the rows are missing, are no pictures",
    "grey pictures of 16 bits turn white",
    "all rows have the same picture",
    "the adapter leaves experts out that its targets are meant for",
    "the run sets a factor for the balance of experts",
    "a factor for the balance of experts is set",
    # These are seen in weights, batches or answers alone.
    "the adapter's tensors on experts are not those",
    "the tokenizer is not the one that this model was published with",
    "the saved model or adapter is not what the training beside it wrote",
    "the stack does not know a setting",
    "a setting is given twice",
    "a checkpoint of `truetune train`",
    "the answer of a marked row",
    "in part of the rows the question is the answer",
    "a text of a marked row",
    "the loss is very low",
    "the model was trained on its prompts",
    "the loss on the prompts fell",
    "the loss rises to one value and stays there",
    "all completions of a group have the same reward",
    "a reward function gives no number",
    "a reward function pays for thoughts on one line",
    "the clip holds back so many tokens",
    "the weights of the reward functions are not as many",
    "a batch of generated answers does not hold whole groups",
    "a distillation learns prompt tokens or padding",
    "a distillation on sampled answers learns other tokens",
    "the rewards for form rise to their maximum",
    "prompts are cut at their length limit, so the policy",
    "the critic of PPO predicts returns worse",
    "the sampler's log-probabilities drift away",
    "the importance correction weighs most answers down",
    "a training by rewards raises no reward on a miniature",
    "the advantages of single answers are so large",
    # These are seen where files or rows are compared with each other.
    "the weights are quantized with",
    "rows have roles that their",
    "many rows share a prompt but have unrelated answers",
    "the chat template leaves out, repeats",
    "the tokenizer splits texts by chance",
    "the tokenizer does not decode to the text",
    "LLaMA-Factory drops chats whose turns do not alternate",
    "tool calls have the parameters of other tools",
    "tool calls do not match the tool definitions",
    "tool results are missing",
    "instructions refer to a text",
    "prompts ask for tags",
    "gold answers of a reinforcement learning run",
    "chats repeat their own turns",
    "several rows are beginnings of one conversation",
    "one of the model's weight files is the base's",
    "the folder contains two sets of weights",
    # The order of several statements shows these, never one of them.
    "calls that set up a training are in an order",
    "calls within a training step are in an order",
    "calls that save or resume a run are in an order",
    "the batches that a resumed run skips are skipped again",
    "weights are kept in a second variable",
    "early stopping counts wrongly",
    "a reward function can't distinguish completions",
    "a reward function looks for the answer inside of the reference",
    "advantages are centred on the rewards of other prompts",
    "the old log-probabilities are taken again",
    "answers are sampled at one temperature",
    "results of tools are in the policy loss",
    "a policy is trained on its answers after decoding",
    "a loop sets the seed again in each pass",
    "a value is computed for a purpose",
    # What is missing shows these, or a name that only the other statements tell to be wrong.
    "a command line option changes nothing",
    "a statement that looks like a training step",
    "a method of a callback, a trainer or a Lightning module",
)
ASK = "print(model.generate(**ids))\n"
TRAIN = "trainer.train()\n"


def shows(name: str, text: str, cause: str) -> bool:
    """Does a text show a cause of the guide, by its first words?"""
    (full,) = (
        one.text for one, _ in _causes_of_guide_and_if_listed(GUIDE) if one.text.startswith(cause)
    )
    found = find_signs([ProjectText(Path(name), text, True)])
    return any(sign in SIGNS for sign in signs_belonging_to_cause_text(full) if sign in found)


@pytest.mark.parametrize(
    ("cause", "text", "near_miss"),
    [
        (
            "another column",
            "labels = batch['input_ids'].clone()\n",
            "labels = batch['input_ids'].clone()\nlabels[mask == 0] = -100\n",
        ),
        (
            "another column",
            "SFTConfig(dataset_text_field='q')\n",
            "SFTConfig(dataset_text_field='text')\n",
        ),
        ("another column", "q = list(row.values())[0]\n", "q = row['question']\n"),
        (
            "the answers of the rows are all alike",
            "chat = [{'role': 'assistant', 'content': row['label']}]\n",
            "chat = [{'role': 'assistant', 'content': row['answer']}]\n",
        ),
        (
            "training compares the answers to",
            "grpo:\n  num_generations_per_prompt: 1\n",
            "grpo:\n  num_generations_per_prompt: 16\n",
        ),
        (
            "training saves no trained weights",
            "trainer:\n  save_freq: -1\n",
            "trainer:\n  save_freq: 20\n",
        ),
        (
            "labels are shifted twice",
            "y = model(input_ids=x[:-1], labels=ids[1:])\nlabels = ids[1:]\n",
            "labels = ids[1:]\nlogits = logits[:, :-1]\n",
        ),
        (
            "token ids are stored in an integer type",
            "ids = tokenizer(text)['input_ids']\nnp.array(ids, dtype=np.uint16).tofile('a.bin')\n",
            "ids = tokenizer(text)['input_ids']\nnp.array(ids, dtype=np.uint32).tofile('a.bin')\n",
        ),
        (
            "the configuration trains the demo",
            "load_dataset('tatsu-lab/alpaca')\n",
            "load_dataset('json')\n",
        ),
        (
            "the text that answers are made from",
            "PROMPT = 'Answer from this: {context}'\n",
            "PROMPT = 'Answer from this: {context}'\ntext = PROMPT.format(context=row['context'])\n",
        ),
        (
            "what was trained does not arrive",
            "m.load_state_dict(s, strict=False)\n",
            "m.load_state_dict(s)\n",
        ),
        (
            "the run makes a few optimizer steps",
            "SFTConfig(max_steps=60)\n",
            "SFTConfig(max_steps=6000)\n",
        ),
        ("the run makes a few optimizer steps", "max_steps: int = 30\n", "max_steps: int = -1\n"),
        (
            "the run makes a few optimizer steps",
            "p.add_argument('--max_steps', type=int, default=50)\n",
            "p.add_argument('--max_steps', type=int, default=5000)\n",
        ),
        (
            "a hand-written attention mask",
            "mask = seq[:, None] == seq[None, :]\n",
            "mask = (seq[:, None] == seq[None, :]) & torch.ones(n, n).tril()\n",
        ),
        (
            "a limit of a trial",
            "pl.Trainer(overfit_batches=8)\n",
            "pl.Trainer(limit_train_batches=1.0)\n",
        ),
        ("a limit of a trial", "rows = rows.select(range(64))\n", "val = rows.select(range(64))\n"),
        ("a limit of a trial", "SMOKE_TEST = True\n", "SMOKE_TEST = False\n"),
        (
            "a config, collator or callback",
            "lora = LoraConfig(r=8)\n",
            "lora = LoraConfig(r=8)\nSFTTrainer(m, peft_config=lora)\n",
        ),
        (
            "a config, collator or callback",
            "c = DataCollatorForSeq2Seq(tok)\n",
            "c = DataCollatorForSeq2Seq(tok)\nTrainer(m, data_collator=c)\n",
        ),
        (
            "the base is asked instead",
            "m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n" + ASK,
            "m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\nm = PeftModel.from_pretrained(m, a)\n"
            + ASK,
        ),
        (
            "the base is asked instead",
            "m = get_peft_model(m, c)\n" + ASK,
            "m = get_peft_model(m, c)\n" + TRAIN + ASK,
        ),
        ("the base is asked instead", "with model.disable_adapter():\n    " + ASK, ASK),
        (
            "the base is asked instead",
            "llm = LLM(model=b, enable_lora=True)\nout = llm.chat(chats, params)\n",
            "llm = LLM(model=b, enable_lora=True)\nout = llm.chat(chats, params, lora_request=lora)\n",
        ),
        (
            "the adapter was loaded frozen",
            "m = PeftModel.from_pretrained(m, a)\n" + TRAIN,
            "m = PeftModel.from_pretrained(m, a, is_trainable=True)\n" + TRAIN,
        ),
        (
            "a step is smaller than bfloat16",
            "m = AutoModel.from_pretrained(p, dtype=torch.bfloat16)\nopt = AdamW(m.parameters(), lr=5e-6)\n",
            "m = AutoModel.from_pretrained(p, dtype=torch.bfloat16)\nopt = AdamW(m.parameters(), lr=5e-5)\n",
        ),
        (
            "the learning rate is far below",
            "lora = LoraConfig(r=8)\nSFTConfig(learning_rate=1e-6)\n",
            "lora = LoraConfig(r=8)\nSFTConfig(learning_rate=1e-4)\n",
        ),
        (
            "facts that are in few rows",
            "import fitz\ntrainer = SFTTrainer(m)\n",
            "import json\ntrainer = SFTTrainer(m)\n",
        ),
        (
            "each fact is in one wording",
            "q = f'What is the code of {pump}?'\n",
            "q = f'{question}'\n",
        ),
        (
            "the own rows are lost",
            "rows = concatenate_datasets([own, general])\n",
            "rows = load_dataset('json', data_files='own.jsonl')\n",
        ),
        (
            "the container has older weights",
            "snapshot_download(r, revision='v1')\n",
            "snapshot_download(r)\n",
        ),
        (
            "saved weights have module.",
            "m.load_state_dict(s, strict=False)\n",
            "m.load_state_dict(s, strict=True)\n",
        ),
        (
            "saved weights have module.",
            "m = torch.compile(m)\nm.save_pretrained(o)\n",
            "m = torch.compile(m)\nm._orig_mod.save_pretrained(o)\n",
        ),
        (
            "the run resumed",
            "for epoch in range(first, a.epochs):\n    pass\n",
            "for epoch in range(a.epochs):\n    pass\n",
        ),
        (
            "the run resumed",
            "trainer.train(resume_from_checkpoint=True)\n",
            "trainer.train(resume_from_checkpoint=None)\n",
        ),
        (
            "only the end token has a label",
            "cut = ids[::-1].index(marker)\nlabels[:cut] = -100\n",
            "cut = ids.index(marker)\nlabels[:cut] = -100\n",
        ),
        ("an earlier preparation", "rows = pickle.load(fh)\n", "rows = json.load(fh)\n"),
        ("an earlier preparation", "rows = load_from_disk(p)\n", "rows.save_to_disk(p)\n"),
        (
            "the ids of images keep",
            "labels = batch['input_ids'].clone()\nx = processor(images)\n",
            "labels = batch['input_ids'].clone()\nlabels[labels == processor.image_token_id] = -100\n",
        ),
        (
            "the rows were generated",
            "rows = read('synthetic.jsonl')\n",
            "rows = read('mails.jsonl')\n",
        ),
        (
            "checkpoints are asked with one cache",
            "evaluate(use_cache='lm.db')\n",
            "model.generate(use_cache=True)\n",
        ),
        (
            "an older checkpoint is asked",
            "c = sorted(glob('out/*'))[-1]\n",
            "c = sorted(glob('out/*'), key=step)[-1]\n",
        ),
        (
            "an older checkpoint is asked",
            "m = P.from_pretrained('out/checkpoint-50')\n",
            "m = P.from_pretrained('out')\n",
        ),
        (
            "training ends at an early",
            "TrainingArguments(load_best_model_at_end=True)\n",
            "TrainingArguments(load_best_model_at_end=False)\n",
        ),
        (
            "the pads have labels",
            "x = tok(t, padding='max_length')\nx['labels'] = x['input_ids'].copy()\n",
            "x = tok(t)\nx['labels'] = x['input_ids'].copy()\n",
        ),
        (
            "the trainer masks by",
            "SFTConfig(assistant_only_loss=True)\n",
            "SFTConfig(assistant_only_loss=False)\n",
        ),
        (
            "tool call arguments",
            "tool = {'arguments': json.dumps(a)}\n",
            "tool = {'arguments': a}\n",
        ),
        (
            "the response marker that the trainer masks",
            "response_template = '### A'\n",
            "template = '### A'\n",
        ),
        (
            "answers are paired with",
            "a = frame['answer'].dropna().reset_index(drop=True)\n",
            "frame = frame.dropna()\n",
        ),
        (
            "rows are joined by position",
            "q = q.sort_values('t')\nx = F({'q': q['t'].values, 'a': a['t'].values})\n",
            "q = q.sort_values('t')\nx = q.merge(a, on='id')\n",
        ),
        (
            "the settings swap question and answer",
            "Map(prompt_column='answer')\n",
            "Map(prompt_column='question')\n",
        ),
        (
            "max_length is not set, so TRL",
            "SFTConfig(output_dir='o')\n",
            "SFTConfig(output_dir='o', max_length=4096)\n",
        ),
        (
            "examples longer than max_length",
            "SFTConfig(max_length=512)\n",
            "SFTConfig(max_length=4096)\n",
        ),
        (
            "the worst checkpoint is kept",
            "if f1 < best:\n    save()\n",
            "if f1 > limit:\n    save()\n",
        ),
        (
            "a name in the LoRA target modules",
            "LoraConfig(target_modules=['c_attn'])\n",
            "LoraConfig(target_modules=['q_proj'])\n",
        ),
        ("LoRA has rank 1 on a single", "LoraConfig(r=1)\n", "LoraConfig(r=16)\n"),
        (
            "the model that is saved as the tuned one",
            "m = AutoModel.from_pretrained(b)\nm.save_pretrained(o)\n",
            TRAIN + "m.save_pretrained(o)\n",
        ),
        (
            "`model.state_dict` is replaced",
            "model.state_dict = old.__get__(model)\n",
            "s = model.state_dict()\n",
        ),
        (
            "a model that has an adapter",
            "m = PeftModel.from_pretrained(m, a)\nm = get_peft_model(m, c)\n",
            "m = get_peft_model(m, c)\n",
        ),
        (
            "a quantization config",
            "b = BitsAndBytesConfig()\n",
            "b = BitsAndBytesConfig()\nM.load(quantization_config=b)\n",
        ),
        ("the model that merge_and_unload", "m.merge_and_unload()\n", "m = m.merge_and_unload()\n"),
        ("tokens are taken out", "attention_mask[:, :n] = 0\n", "labels[:, :n] = -100\n"),
        ("a cast is always true", "x = bool(row['ok'])\n", "x = int(row['ok'])\n"),
        ("rows are transformed", "rows.shuffle(seed=1)\n", "rows = rows.shuffle(seed=1)\n"),
        ("a loop makes a new iterator", "b = next(iter(loader))\n", "b = next(batches)\n"),
        (
            "labels are counted off",
            "labels[-len(a):] = a\npadding = 'max_length'\n",
            "labels[:len(p)] = a\npadding = 'max_length'\n",
        ),
        (
            "each process takes its part",
            "rows = rows.shard(n, i)\nTrainer(m)\n",
            "rows = rows.shuffle()\nTrainer(m)\n",
        ),
        (
            "a filter on weight names",
            "if 'lora' in name:\n    p.requires_grad = True\n",
            "if name:\n    p.requires_grad = True\n",
        ),
        (
            "the label mask is inverted",
            "labels = ids + [-100] * len(answer)\n",
            "labels = [-100] * len(prompt) + answer\n",
        ),
        (
            "the Kullback-Leibler loss",
            "F.kl_div(s, t)\n",
            "F.kl_div(s, t, reduction='batchmean')\n",
        ),
        (
            "answers are read from a cache file",
            "if os.path.exists(pred_path):\n    pass\n",
            "if os.path.exists(config):\n    pass\n",
        ),
        (
            "a vLLM server is given adapters",
            "r = LoRARequest('a', 1, p)\n",
            "r = LoRARequest('a', 1, p)\nLLM(m, enable_lora=True)\n",
        ),
        (
            "the embedding rows of new tokens",
            "lora = 1\ntok.add_tokens(['<a>'])\n",
            "lora = 1\ntok.add_special_tokens({'pad_token': '<p>'})\n",
        ),
        (
            "no parameter of the model",
            "p.requires_grad = False\n",
            "p.requires_grad = False\nq.requires_grad = True\n",
        ),
        (
            "the loss teaches positions",
            "f = CrossEntropyLoss()\n",
            "f = CrossEntropyLoss(ignore_index=-100)\n",
        ),
        (
            "a loss or a difference gets tensors",
            "loss = F.mse_loss(scores, target)\n",
            "loss = F.cross_entropy(scores, target)\n",
        ),
        (
            "a term of a custom policy loss",
            "loss = (ratio * advantages).mean()\n",
            "loss = -(ratio * advantages).mean()\n",
        ),
        (
            "a reward function rewards distance",
            "def r(completions, **kw):\n    return [abs(200 - len(c)) for c in completions]\n",
            "def r(completions, **kw):\n    return [-abs(200 - len(c)) for c in completions]\n",
        ),
        (
            "completions are ordered in blocks",
            "rewards = score(prompts * 8)\n",
            "rewards = score([p for p in prompts for _ in range(8)])\n",
        ),
        (
            "pandas reads words in a column as missing",
            "df = pd.read_csv('codes.csv')\n",
            "df = pd.read_csv('codes.csv', keep_default_na=False)\n",
        ),
        (
            "the stride between windows is larger",
            "rows = [x[i:i + n] for i in range(0, len(x) - n, stride)]\n",
            "rows = [x[i:i + n] for i in range(0, len(x) - n)]\n",
        ),
        (
            "`len()` of a tokenizer's result",
            "n = len(tokenizer(row['prompt']))\n",
            "n = len(tokenizer(row['prompt'])['input_ids'])\n",
        ),
        (
            "a script merges an adapter by hand",
            "w += lora['lora_B.weight'] @ lora['lora_A.weight']\n",
            "w += 2.0 * delta\n",
        ),
        (
            "layers that a module keeps in a plain list",
            "self.heads = [nn.Linear(8, 1) for _ in range(4)]\n",
            "self.heads = nn.ModuleList([nn.Linear(8, 1) for _ in range(4)])\n",
        ),
        (
            "a custom LoRA adapter",
            "self.lora_A = nn.Parameter(torch.zeros(8, 64))\n",
            "self.weight = nn.Parameter(torch.zeros(8, 64))\n",
        ),
    ],
)
def test_statements_of_python(cause: str, text: str, near_miss: str) -> None:
    assert shows("a.py", text, cause)
    assert not shows("a.py", near_miss, cause)


@pytest.mark.parametrize(
    ("name", "cause", "text", "near_miss"),
    [
        ("a.yaml", "another column", "train_on_inputs: true\n", "train_on_inputs: false\n"),
        ("a.yaml", "another column", "  train_on_input: True\n", "  train_on_input: False\n"),
        (
            "a.yaml",
            "the configuration trains",
            "dataset: identity,alpaca_en_demo\n",
            "dataset: claims\n",
        ),
        (
            "a.sh",
            "the run makes a few",
            "swift sft \\\n  --max_steps 40 \\\n  --lr 1\n",
            "swift sft \\\n  --max_steps 4000 \\\n  --lr 1\n",
        ),
        (
            "a.log",
            "the run makes a few",
            "  Total optimization steps = 3\n",
            "  Total optimization steps = 3,000\n",
        ),
        (
            "a.yaml",
            "the run makes a few",
            "gradient_accumulation_steps: 64\n",
            "gradient_accumulation_steps: 4\n",
        ),
        ("a.yaml", "a limit of a trial", "max_samples: 200\n", "max_length: 200\n"),
        (
            "Modelfile",
            "the base is asked instead",
            "FROM llama3.1:8b\nSYSTEM x\n",
            "FROM llama3.1:8b\nADAPTER ./a.gguf\n",
        ),
        (
            "a.sh",
            "the base is asked instead",
            "vllm serve Qwen/Qwen2.5-7B-Instruct\n",
            "vllm serve ./out/merged\n",
        ),
        (
            "a.sh",
            "the evaluation names the base",
            "lm_eval --model_args pretrained=a/b\n",
            "lm_eval --model_args pretrained=a/b,peft=out\n",
        ),
        (
            "a.sh",
            "a vLLM server runs with random",
            "vllm serve m --load-format dummy\n",
            "vllm serve m --load-format auto\n",
        ),
        (
            "a.sh",
            "a vLLM server is given adapters",
            "vllm serve m --lora-modules a=b\n",
            "vllm serve m --enable-lora --lora-modules a=b\n",
        ),
        (
            "a.yml",
            "the container has older",
            "image: registry/llm:1\n",
            "image: vllm/vllm-openai:v0.8.5\n",
        ),
        (
            "Dockerfile",
            "the container has older",
            "COPY ./models/a /models/a\n",
            "COPY ./app.py /app.py\n",
        ),
        ("a.sh", "the server of before", "nohup vllm serve m &\n", "vllm serve m\n"),
        (
            "a.log",
            "the server of before",
            "[Errno 98] address already in use\n",
            "listening on 8000\n",
        ),
        (
            "a.sh",
            "an older checkpoint",
            "ls -d out/checkpoint-* | sort | tail -1\n",
            "ls -d out/checkpoint-* | sort -V | tail -1\n",
        ),
        (
            "a.sh",
            "checkpoints are asked",
            "lm_eval --use_cache /tmp/c\n",
            "lm_eval --batch_size 4\n",
        ),
        (
            "a.yaml",
            "an earlier preparation",
            "dataset_prepared_path: prepared\n",
            "dataset_prepared_path:\n",
        ),
        (
            "a.yaml",
            "LLaMA-Factory resumes an earlier run",
            "stage: sft\noutput_dir: out\n",
            "stage: sft\noutput_dir: out\noverwrite_output_dir: true\n",
        ),
        ("a.yaml", "LoRA settings are given, but", "lora_r: 16\n", "adapter: lora\nlora_r: 16\n"),
        (
            "a.yaml",
            "load_best_model_at_end is set, but checkpoints",
            "load_best_model_at_end: true\n",
            "load_best_model_at_end: false\n",
        ),
        (
            "a.json",
            "the DeepSpeed schedule replaces the",
            '"warmup_max_lr": 0.001\n',
            '"zero_optimization": 2\n',
        ),
        ("a.json", "steps are skipped because", '"loss_scale": 65536\n', '"loss_scale": 0\n'),
        (
            "a.yaml",
            "the settings train no weight",
            "learning_rate: 0.0\n",
            "learning_rate: 0.0002\n",
        ),
        (
            "a.log",
            "the settings train no weight",
            "learning_rate: 0.0\n",
            "{'loss': 1.2, 'learning_rate': 0.0}\n",
        ),
        (
            "a.log",
            "the output shows that hardly more",
            "trainable params: 0 || x\n",
            "trainable params: 8,000 || trainable%: 0.52\n",
        ),
        (
            "a.yaml",
            "packed documents attend to the",
            "packing: true\n",
            "packing: true\nflash_attn: fa2\nattn_implementation: flash_attention_2\n",
        ),
        (
            "a.yaml",
            "the final save of a sharded",
            "fsdp_state_dict_type: SHARDED_STATE_DICT\n",
            "fsdp_state_dict_type: FULL_STATE_DICT\n",
        ),
        (
            "a.yaml",
            "the limit on generated tokens",
            "max_completion_length: 256\n",
            "max_completion_length: 4096\n",
        ),
        (
            "a.sh",
            "options are on a separate line",
            "torchrun train.py --bf16\n  --learning_rate 1e-4\n",
            "torchrun train.py --bf16 \\\n  --learning_rate 1e-4\n",
        ),
        (
            "a.py",
            "turns are marked as not to be trained",
            "row = {'role': 'assistant', 'content': a, 'train': False}\n",
            "row = {'role': 'assistant', 'content': a, 'train': True}\n",
        ),
        ("a.yaml", "LoRA has rank 1 on a single", "lora_rank: 2\n", "lora_rank: 32\n"),
        ("a.log", "LoRA has rank 1 on a single", "lora_r: 1\n", "rank      : 1 (local_rank: 1)\n"),
    ],
)
def test_lines_of_settings_and_output(name: str, cause: str, text: str, near_miss: str) -> None:
    assert shows(name, text, cause)
    assert not shows(name, near_miss, cause)


def test_what_speaks_against_a_sign_may_stand_in_another_file() -> None:
    rows = ProjectText(Path("rows.py"), "m = [{'role': 'system', 'content': S}]\n", True)
    bot = ProjectText(Path("bot.py"), "m = [{'role': 'user', 'content': q}]\n", True)
    (cause,) = (
        one.text
        for one, _ in _causes_of_guide_and_if_listed(GUIDE)
        if one.text.startswith("the rows carry a system prompt")
    )
    found = find_signs([rows, bot])
    lines = [
        line.place for sign in signs_belonging_to_cause_text(cause) for line in found.get(sign, ())
    ]
    assert lines[:1] == ["bot.py:1"]
    assert not any(
        sign in find_signs([bot]) for sign in signs_belonging_to_cause_text(cause) if sign in SIGNS
    )


@pytest.mark.parametrize("cause", [one.text for one, _ in _causes_of_guide_and_if_listed(GUIDE)])
def test_each_cause_that_a_text_can_show_has_a_sign(cause: str) -> None:
    assert bool(signs_belonging_to_cause_text(cause)) is not cause.startswith(NO_TEXT_SHOWS)


def test_each_sign_names_a_cause() -> None:
    texts = [one.text for one, _ in _causes_of_guide_and_if_listed(GUIDE)]
    shown = [sign for text in texts for sign in signs_belonging_to_cause_text(text)]
    assert [sign.words for sign in SIGNS if sign not in shown] == []


@pytest.mark.parametrize(
    "part", ["a", "a_", "labels[", "x = ", "'prompt': ", "model=a/", "if best "]
)
def test_no_pattern_is_slow_on_the_longest_statement(part: str) -> None:
    text = (part * MAX_STATEMENT_CHARACTERS)[:MAX_STATEMENT_CHARACTERS]
    began = time.process_time()
    find_signs([ProjectText(Path("a.txt"), "\n".join([text] * 3), True)])
    # Measured: below 0.3 s. Chosen for a slow machine: a pattern that is cubic takes minutes.
    assert time.process_time() - began < 5
