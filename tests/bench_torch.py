"""Steps of the same Llama in PyTorch (eager, CPU), for the bench: `bench_torch.py SETTINGS_JSON`. Prints tokens a second."""

import json
import sys
import time
from statistics import median

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SETTINGS = json.loads(sys.argv[1])


def main() -> None:
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**SETTINGS["model"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    batch = torch.randint(0, SETTINGS["model"]["vocab_size"], (SETTINGS["batch"], SETTINGS["length"]))
    seconds = []
    for _ in range(SETTINGS["steps"]):
        began = time.perf_counter()
        loss = model(batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        float(loss)
        seconds.append(time.perf_counter() - began)
    sys.stdout.write(str(batch.numel() / median(seconds[5:])))


if __name__ == "__main__":
    main()
