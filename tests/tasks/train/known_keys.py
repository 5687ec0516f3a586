"""Puts mindformers YAML files through mindformers' own configuration classes: `known_keys.py FOLDER FILE...`.

Ends with an error that names what one of them does not know.
"""

import inspect
import os
import sys
from pathlib import Path
from typing import Any

FOLDER, FILES = Path(sys.argv[1]).absolute(), [Path(name).absolute() for name in sys.argv[2:]]
os.chdir(FOLDER)  # mindformers writes beside the current folder

import yaml  # noqa: E402
from mindformers.core.callback import callback  # noqa: E402
from mindformers.core.lr import lr_schedule  # noqa: E402
from mindformers.core.optim.adamw import AdamW  # noqa: E402
from mindformers.models.llama import LlamaConfig  # noqa: E402
from mindformers.models.qwen3.configuration_qwen3 import Qwen3Config  # noqa: E402
from mindformers.tools.register.template import CONFIG_NAME_TO_CLASS, ConfigTemplate  # noqa: E402
from mindformers.wrapper import wrapper  # noqa: E402

OWN = {"StepRecorder", "PortableTrainOneStep"}
CHECKED = ("parallel_config", "recompute_config", "runner_config")


def main() -> None:
    for file in FILES:
        check(yaml.safe_load(file.read_text(encoding="utf-8")), file.name)


def check(content: dict[str, Any], name: str) -> None:
    for section in CHECKED:
        CONFIG_NAME_TO_CLASS[section].apply(content[section])  # raises KeyError for what it does not know
    general = set(CONFIG_NAME_TO_CLASS["general_config"].keys()) | set(CONFIG_NAME_TO_CLASS)
    if unknown := set(content) - general:
        raise KeyError(f"{name}: {unknown}")
    takes(AdamW, content["optimizer"], name)
    takes(getattr(lr_schedule, content["lr_schedule"]["type"]), content["lr_schedule"], name)
    for one in content["callbacks"]:
        if one["type"] not in OWN:
            takes(getattr(callback, one["type"]), one, name)
    if content["runner_wrapper"]["type"] not in OWN:
        kind = getattr(wrapper, content["runner_wrapper"]["type"])
        takes(kind, content["runner_wrapper"], name, inspect.signature(wrapper.MFTrainOneStepCell.__init__).parameters)
    model = content["model"]["model_config"]
    if content["use_legacy"]:
        takes(LlamaConfig, model, name)
        LlamaConfig(**{key: value for key, value in model.items() if key != "type"})
    else:
        config = Qwen3Config(**model)
        config.convert_to_transformer_config()  # raises for keys that nothing maps
    ConfigTemplate.apply_template(dict(content))


def takes(kind: Any, section: dict[str, Any], name: str, more: Any = ()) -> None:
    known = {*inspect.signature(kind.__init__).parameters, *more, "type"}
    base = {"eos_token_id", "pad_token_id", "bos_token_id"}
    if unknown := set(section) - known - base:
        raise KeyError(f"{name}: {kind.__name__} does not take {unknown}")


if __name__ == "__main__":
    main()
