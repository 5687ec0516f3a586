"""Logits of mindformers' Llama: `mindformers_logits.py TRAINING_YAML WEIGHTS IDS OUTPUT`. IDS: .npy of (texts, tokens)."""

import os
import sys
from pathlib import Path

YAML, WEIGHTS, IDS, OUTPUT = (Path(argument).absolute() for argument in sys.argv[1:])
os.chdir(OUTPUT.parent)  # mindformers writes beside the current folder

import mindspore as ms  # noqa: E402
import numpy as np  # noqa: E402
import yaml  # noqa: E402
from mindformers.models.llama import LlamaConfig, LlamaForCausalLM  # noqa: E402


def main() -> None:
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    ids = np.load(IDS)
    settings = yaml.safe_load(YAML.read_text())["model"]["model_config"]
    settings |= {"batch_size": len(ids), "seq_length": ids.shape[1]}
    network = LlamaForCausalLM(LlamaConfig(**{key: value for key, value in settings.items() if key != "type"}))
    ms.load_param_into_net(network, ms.load_checkpoint(str(WEIGHTS), format="safetensors"), strict_load=True)
    network.set_train(False)
    logits = network(ms.Tensor(ids.astype(np.int32)))[0]
    np.save(OUTPUT, logits.asnumpy().reshape(*ids.shape, -1))


if __name__ == "__main__":
    main()
