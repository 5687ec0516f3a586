"""Logits and token ids by transformers, in an environment of its own: `torch_logits.py FOLDER TEXTS OUTPUT`.

TEXTS: a JSON list. Writes to OUTPUT.json the ids of each text, and to OUTPUT.npy the logits of their first tokens.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

FOLDER, TEXTS, OUTPUT = sys.argv[1:]
TOKENS = 24


def main() -> None:
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    texts = json.loads(Path(TEXTS).read_text(encoding="utf-8"))
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    batch = np.array([one[:TOKENS] for one in ids])
    with torch.no_grad():
        logits = model(torch.tensor(batch)).logits.numpy()
    np.save(f"{OUTPUT}.npy", logits)
    Path(f"{OUTPUT}.json").write_text(json.dumps({"ids": ids, "eos": tokenizer.eos_token_id}))


if __name__ == "__main__":
    main()
