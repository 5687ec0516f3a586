"""A forward and backward pass of a small network: `python -m tasks.train.tiny DEVICE FOLDER`. If this fails, so does all."""

import os
import sys

DEVICE, FOLDER = sys.argv[1:]
os.chdir(FOLDER)  # MindSpore and mindformers write beside the current folder

import mindspore as ms  # noqa: E402
import numpy as np  # noqa: E402
from mindspore import nn, ops  # noqa: E402


class Tiny(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(8, 1)

    def construct(self, inputs: ms.Tensor) -> ms.Tensor:
        return ops.square(self.dense(inputs)).mean()


def main() -> None:
    ms.set_context(mode=ms.GRAPH_MODE, device_target=DEVICE)
    network = Tiny()
    gradients = ms.grad(network, None, network.trainable_params())(ms.Tensor(np.ones((4, 8), np.float32)))
    finite = all(np.isfinite(gradient.asnumpy()).all() for gradient in gradients)
    if not finite:
        raise ValueError("the gradients of a small network are not finite")


if __name__ == "__main__":
    main()
