"""mindformers' Trainer alone, for the bench: `bench_bare.py JOB_FILE`. Same network and step as the worker, but its callback
only notes the time of each step's end, in `bare.json`.
"""

import json
import time
from pathlib import Path
from typing import Any

from tasks.train import mindformers_yaml, worker

import mindspore as ms  # isort: skip - only after the worker has chosen its folder
from mindformers import MindFormerConfig, Trainer, build_context
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class BareTimer(ms.Callback):  # type: ignore[misc]
    """Notes when each step ended, its loss having been fetched, as any loop does."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: list[float] = []

    def on_train_step_end(self, run_context: Any) -> None:
        arguments = run_context.original_args()
        float(arguments.net_outputs[0].asnumpy().mean())
        self._ends.append(time.perf_counter())
        if len(self._ends) >= worker.JOB["steps"]:
            Path("bare.json").write_text(json.dumps(self._ends))
            run_context.request_stop()


def main() -> None:
    config = MindFormerConfig(str(worker.FOLDER / mindformers_yaml.FILE))
    config.callbacks = [MindFormerConfig(type="BareTimer")]
    build_context(config)
    Trainer(config).train()


if __name__ == "__main__":
    main()
