"""Lines that show why a preference training has no effect, and near misses that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.signs import preference_training_without_effect
from truetune.troubleshooting.signs.find_signs_in_statements import find_signs

DPO = "args = DPOConfig(rpo_alpha=1.0)\n"
LOSS = "loss = -F.logsigmoid(beta * margin).mean()\n"
OWN_REFERENCE = "ref = AutoModelForCausalLM.from_pretrained('out/sft')\n"
PAIR = "row = {'chosen': a, 'rejected': b}\n"
HUB_MODEL = "m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n"
CASES = [
    ("both sides of a pair", "{'chosen': best(r), 'rejected': best(r)}\n", PAIR),
    ("both sides of a pair", DPO + "max_length = 256\n", DPO + "max_length = 2048\n"),
    ("no token of the answers", "{'logps/chosen': 0.0}\n", "{'logps/chosen': -20.0}\n"),
    (
        "the labels are random",
        "row = {'chosen': r['response_a'], 'rejected': r['response_b']}\n",
        "row = {'chosen': r['good'], 'rejected': r['bad']}\n",
    ),
    ("a cast is always true", "rows['label'] = rows.thumb.astype(bool)\n", "x = rows.thumb\n"),
    (
        "in both orders",
        "for a, b in permutations(answers, 2):\n    add(chosen=a)\n",
        "for a, b in combinations(answers, 2):\n    add(chosen=a)\n",
    ),
    (
        "the sides are exchanged",
        '"chosen": "answer_model",\n"rejected": "answer_agent"\n',
        "{'rewards/chosen': 0.1, 'rewards/rejected': -0.2}\n",
    ),
    (
        "the sides are exchanged",
        "a.sort(key=lambda one: one['score'])\n" + PAIR,
        "a = load()\n" + PAIR,
    ),
    (
        "the rejected answers are all alike",
        "row = dict(chosen=a, rejected='I cannot help with that.')\n",
        "row = dict(chosen=a, rejected=b)\n",
    ),
    (
        "belong to other prompts",
        "pairs = list(zip(chosen, rejected))\n",
        "pairs = [(r['chosen'], r['rejected']) for r in rows]\n",
    ),
    (
        "many pairs are ties",
        "if r['score_a'] >= r['score_b']:\n    row = {'chosen': a}\n",
        "if r['score_a'] > r['score_b'] + 1:\n    row = {'chosen': a}\n",
    ),
    ("the length of the answers", "chosen = max(answers, key=len)\n", "chosen = pick(answers)\n"),
    (
        "have different prompts",
        "row['chosen'] = prompt + answer\n",
        "row['chosen'] = answer\n",
    ),
    (
        "only one side of a pair ends",
        "row['chosen'] = a + tok.eos_token\n",
        "row['chosen'] = a\n",
    ),
    (
        "a pattern of the reward does not match the form",
        "FORM = re.compile(r'<think>.*?</think>')\nGRPOTrainer(model=m, reward_funcs=[paid])\n",
        "FORM = re.compile(r'<think>.*?</think>', re.S)\nGRPOTrainer(model=m, reward_funcs=[paid])\n",
    ),
    (
        "are plain strings",
        "row = {'prompt': r['q'], 'chosen': a}\n",
        "row = {'prompt': [{'role': 'user', 'content': q}], 'chosen': a}\n",
    ),
    (
        "KTO's labels",
        "t = KTOTrainer()\nrow = {'label': r['thumb']}\n",
        "t = DPOTrainer()\nrow = {'label': r['thumb']}\n",
    ),
    (
        "the learning rate is too low",
        DPO + "learning_rate = 5e-9\n",
        DPO + "learning_rate = 5e-6\n",
    ),
    ("beta is so large", DPO + "beta = 5.0\n", DPO + "beta = 0.1\n"),
    ("beta is so large", "rl: orpo\norpo_alpha: 0.0001\n", "rl: orpo\norpo_alpha: 0.1\n"),
    (
        "the adapter is frozen",
        DPO + "m = PeftModel.from_pretrained(base, 'sft')\n",
        DPO + "m = PeftModel.from_pretrained(base, 'sft', is_trainable=True)\n",
    ),
    ("label smoothing", "label_smoothing: 0.5\n", "label_smoothing: 0.0\n"),
    (
        "too few optimizer steps",
        DPO + "gradient_accumulation_steps = 64\n",
        DPO + "gradient_accumulation_steps = 8\n",
    ),
    (
        "both answers become less likely",
        "args = DPOConfig(learning_rate=5e-5)\n",
        DPO + "learning_rate = 5e-5\n",
    ),
    (
        "the loss is made of something else",
        OWN_REFERENCE + LOSS + "opt = AdamW(ref.parameters())\n",
        OWN_REFERENCE + "opt = AdamW(policy.parameters())\n",
    ),
    ("too few optimizer steps", DPO + "max_steps = 10\n", DPO + "max_steps = 1000\n"),
    (
        "both answers become less likely",
        "{'rewards/chosen': -6.8, 'rewards/rejected': -9.1}\n",
        "{'rewards/chosen': 0.8, 'rewards/rejected': -0.1}\n",
    ),
    ("both answers become less likely", "stage: dpo\n", "stage: dpo\npref_ftx: 0.2\n"),
    (
        "KTO with one to three",
        "t = KTOTrainer()\nper_device_train_batch_size = 2\n",
        "t = KTOTrainer()\nper_device_train_batch_size = 8\n",
    ),
    ("too many epochs", DPO + "num_train_epochs = 5\n", DPO + "num_train_epochs = 1\n"),
    (
        "a warm-up is set, but the schedule",
        "lr_scheduler_type: constant\nwarmup_ratio: 0.1\n",
        "lr_scheduler_type: constant_with_warmup\nwarmup_ratio: 0.1\n",
    ),
    ("dropout stays on", DPO + "lora_dropout = 0.1\n", DPO + "lora_dropout = 0.0\n"),
    (
        "steps are rounded away",
        DPO + "m = load(torch_dtype=torch.bfloat16)\n",
        DPO + "p = LoraConfig()\nm = load(torch_dtype=torch.bfloat16)\n",
    ),
    (
        "policy and reference are the same object",
        "self.ref_model = self.model\n",
        "self.ref_model = load(path)\n",
    ),
    ("policy and reference are the same object", LOSS, OWN_REFERENCE + LOSS),
    (
        "the margin has the wrong sign",
        "m = rejected_logp - chosen_logp\n",
        "m = chosen - rejected\n",
    ),
    ("the loss is made of something else", LOSS, "loss = out.loss\n"),
    (
        "are not the same at the start",
        "precompute_ref_log_probs: true\n",
        "loss_type: sigmoid\n",
    ),
    (
        "are not the same at the start",
        "stage: dpo\nadapter_name_or_path: saves/sft\n",
        "stage: dpo\nadapter_name_or_path: saves/sft\ncreate_new_adapter: true\n",
    ),
    (
        "preference training starts from the",
        "rl: dpo\nbase_model: Qwen/Qwen2.5-7B\n",
        "rl: dpo\nbase_model: ./out/sft\n",
    ),
    (
        "is wrapped into another one",
        "m = PeftModel.from_pretrained(b, 'sft')\nm = get_peft_model(m, c)\n",
        "m = PeftModel.from_pretrained(b, 's').merge_and_unload()\nm = get_peft_model(m, c)\n",
    ),
    (
        "compared afterwards is the base",
        "folder = 'out/dpo'\n" + HUB_MODEL,
        "folder = 'out/dpo'\n" + HUB_MODEL + "m = PeftModel(m, folder)\n",
    ),
    (
        "the adapter from before",
        "llama.convert(adapter_path='saves/sft')\n",
        "llama.convert(adapter_path='saves/dpo')\n",
    ),
    (
        "the client asks the server",
        "c = OpenAI()\nr = c.chat.completions.create(model='base')\n",
        "c = OpenAI()\nr = c.chat.completions.create(model=name)\n",
    ),
    (
        "on the merged SFT",
        "chosen = 1\n" + HUB_MODEL + "m = PeftModel.from_pretrained(m, 'dpo')\n",
        "chosen = 1\nm = load('out/sft')\nm = PeftModel.from_pretrained(m, 'dpo')\n",
    ),
    (
        "another chat template",
        "rl: dpo\ntype: chatml.intel\n",
        "rl: dpo\ntype: json\n",
    ),
    (
        "always in the same place",
        "prompt = 'Answer A: {a} Answer B: {b}. Which is better?'\n",
        "a, b = swap(a, b)\nprompt = 'Answer A: {a} Answer B: {b}. Which is better?'\n",
    ),
    (
        "the reward pays for the form",
        "def format_reward(completions):\n    return 1\n",
        "def result_reward(completions):\n    return 1\n",
    ),
    (
        "prompt and answer by the chat template",
        "rm = load_reward_model()\nx = tok(answer)\n",
        "rm = load_reward_model()\nx = tok(answer)\ny = tok.apply_chat_template(m)\n",
    ),
    (
        "the head of the reward model",
        "RewardTrainer\nc = LoraConfig(task_type='CAUSAL_LM')\n",
        "RewardTrainer\nc = LoraConfig(task_type='SEQ_CLS')\n",
    ),
    (
        "the same reward",
        "algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=1\n",
        "algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=8\n",
    ),
    (
        "the same reward",
        "args = GRPOConfig()\n{'reward_std': 0.0}\n",
        "args = GRPOConfig()\n{'reward_std': 0.4}\n",
    ),
    (
        "always cut off",
        "args = GRPOConfig(max_completion_length=128)\n",
        "args = GRPOConfig(max_completion_length=2048)\n",
    ),
]


def is_shown(cause: str, text: str) -> bool:
    found = find_signs([ProjectText(Path("a.py"), text, True)])
    return any(
        cause in sign.words for sign in found if sign in preference_training_without_effect.SIGNS
    )


@pytest.mark.parametrize(("cause", "text", "near_miss"), CASES)
def test_a_line_shows_a_cause_and_a_near_miss_does_not(
    cause: str, text: str, near_miss: str
) -> None:
    assert is_shown(cause, text)
    assert not is_shown(cause, near_miss)


def test_each_sign_is_tested() -> None:
    shown = {
        sign
        for _, text, _ in CASES
        for sign in find_signs([ProjectText(Path("a.py"), text, True)])
        if sign in preference_training_without_effect.SIGNS
    }
    assert [
        sign.words for sign in preference_training_without_effect.SIGNS if sign not in shown
    ] == []
