"""Makes a small Llama folder by transformers itself: `make_llama.py FOLDER DTYPE`."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

FOLDER, DTYPE = sys.argv[1:]


def main() -> None:
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5,
    )  # fmt: skip
    LlamaForCausalLM(config).to(getattr(torch, DTYPE)).save_pretrained(FOLDER, max_shard_size="200KB")


if __name__ == "__main__":
    main()
