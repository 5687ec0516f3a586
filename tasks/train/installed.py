"""Which keys the installed mindformers and MindSpore know, read from their source without importing them.

mindformers drops unknown keys of most sections in silence, so a checker has to know them itself; reading the installed
version keeps the list true.
"""

import ast
import importlib.util
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from configs.errors import PipelineError

TEMPLATE = "tools/register/template.py"
SECTION_CLASSES = {
    "parallel_config": "ParallelConfig",
    "recompute_config": "RecomputeConfig",
    "swap_config": "SwapConfig",
    "moe_config": "MoEConfig",
    "runner_config": "RunnerConfig",
    "monitor_config": "MonitorConfig",
}
SECTIONS = (
    *SECTION_CLASSES, "parallel", "context", "trainer", "model", "runner_wrapper", "optimizer", "lr_schedule", "metric",
    "train_dataset", "train_dataset_task", "eval_dataset", "eval_dataset_task", "callbacks", "eval_callbacks", "processor",
)  # fmt: skip
CLASS_FILES = {
    "LlamaConfig": "models/llama/llama_config.py",
    "Qwen3Config": "models/qwen3/configuration_qwen3.py",
    "AdamW": "core/optim/__init__.py",
    "FusedAdamW": "core/optim/fused_adamw.py",
    "Came": "core/optim/came.py",
    "Muon": "core/optim/muon.py",
    "PmaAdamW": "core/optim/__init__.py",
    "MFTrainOneStepCell": "wrapper/wrapper.py",
    "MFPipelineWithLossScaleCell": "wrapper/wrapper.py",
    "MFLossMonitor": "core/callback/callback.py",
    "CheckpointMonitor": "core/callback/callback.py",
    "EvalCallBack": "core/callback/callback.py",
    "ProfileMonitor": "core/callback/callback.py",
    "SummaryMonitor": "core/callback/callback.py",
    "TrainCallBack": "core/callback/callback.py",
    "ColdHotExpertMonitor": "core/callback/callback.py",
}
SCHEDULES = "core/lr/lr_schedule.py"
OWN_CLASSES = {"PortableTrainOneStep": "MFTrainOneStepCell", "StepRecorder": None}
"""Classes that the project registers, with the one whose arguments they take."""
BASE_KEYS = {"pad_token_id", "bos_token_id", "eos_token_id", "architectures", "model_type", "tie_word_embeddings"}
"""Of Hugging Face's own base class."""


@cache
def root(package: str = "mindformers") -> Path:
    """Return the folder of an installed package.

    Raises:
        PipelineError: it is not installed.
    """
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise PipelineError(f"{package} is not installed here; install requirements.lock")
    return Path(found.origin).parent


@cache
def general_keys() -> frozenset[str]:
    """Return the keys at the top of a YAML, sections included."""
    return frozenset({*_assigned(TEMPLATE, "GeneralConfig"), *SECTIONS, "checkpoint", "calculate_per_token_loss"})


@cache
def section_keys(section: str) -> frozenset[str] | None:
    """Return the keys of a section that has no `type`, or None where anything goes."""
    if section in SECTION_CLASSES:
        return frozenset(_assigned(TEMPLATE, SECTION_CLASSES[section]))
    if section == "context":
        own = {"affinity_cpu_list", "memory_optimize_level", "exclude_cann_cpu", "parallel", "env_config_path"}
        return frozenset(own | _decorated("context.py", "set_context"))
    if section == "parallel":
        return frozenset({"dataset_strategy", *_decorated("context.py", "set_auto_parallel_context")})
    return None


@cache
def class_keys(name: str) -> frozenset[str] | None:
    """Return the arguments of a class that a `type` names, with those of its bases in the same file; None if unknown."""
    if name in OWN_CLASSES:
        base = OWN_CLASSES[name]
        return frozenset({"type", *((class_keys(base) or frozenset()) if base else ())})
    file = CLASS_FILES.get(name, SCHEDULES)
    classes = {node.name: node for node in ast.walk(_tree(root() / file)) if isinstance(node, ast.ClassDef)}
    if name not in classes:
        return None
    inherited = [found for base in _bases(classes[name]) if (found := classes.get(base)) is not None]
    keys = {argument for node in (classes[name], *inherited) for argument in _arguments(node)}
    return frozenset({"type", *keys})


@cache
def model_keys(config_class: str) -> frozenset[str]:
    """Return the keys of a model's configuration; those of Mcore models include TransformerConfig's own."""
    keys = {*(class_keys(config_class) or ()), *BASE_KEYS}
    if config_class != "LlamaConfig":
        keys |= _fields("parallel_core/transformer_config.py") | _fields("parallel_core/model_parallel_config.py")
        keys |= _mapped("parallel_core/config_converter.py") | _mapped("models/qwen3/config_converter_qwen3.py")
        keys |= _decorated_words("models/qwen3/configuration_qwen3.py")
        keys |= _fields("parallel_core/transformer_config_utils.py") | {"input_sliced_sig"}
    return frozenset(keys)


@cache
def registered_names() -> dict[str, list[str]]:
    """Return class name to the files that register a class under it, where there are several of one kind."""
    found: dict[tuple[str, str], list[str]] = {}
    for file in root().rglob("*.py"):
        if "MindFormerRegister.register" not in (text := file.read_text(encoding="utf-8", errors="replace")):
            continue
        for node in ast.walk(_parse(text)):
            if isinstance(node, ast.ClassDef):
                for kind in _registered_as(node):
                    found.setdefault((kind, node.name), []).append(file.relative_to(root()).as_posix())
    return {f"{kind} {name}": files for (kind, name), files in found.items() if len(files) > 1}


def _registered_as(node: ast.ClassDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "MindFormerRegister.register":
            legacy = next((ast.unparse(word.value) for word in decorator.keywords if word.arg == "legacy"), "")
            search = [ast.unparse(word.value) for word in decorator.keywords if word.arg == "search_names"]
            yield " ".join([ast.unparse(decorator.args[0]) if decorator.args else "", legacy, *search]).strip()


@cache
def _tree(file: Path) -> ast.Module:
    return _parse(file.read_text(encoding="utf-8"))


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of that code's own strings
        return ast.parse(text)


def _bases(node: ast.ClassDef) -> list[str]:
    return [base.id for base in node.bases if isinstance(base, ast.Name)]


def _assigned(file: str, name: str) -> set[str]:
    """Return the class attributes of a class."""
    node = next(n for n in ast.walk(_tree(root() / file)) if isinstance(n, ast.ClassDef) and n.name == name)
    targets = [target for part in node.body if isinstance(part, ast.Assign) for target in part.targets]
    return {target.id for target in targets if isinstance(target, ast.Name) and not target.id.startswith("_")}


def _arguments(node: ast.ClassDef) -> list[str]:
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name in ("__init__", "__new__"):
            return [
                argument.arg
                for argument in (*part.args.args, *part.args.kwonlyargs)
                if argument.arg not in ("self", "cls")
            ]
    return []


def _decorated(file: str, name: str) -> set[str]:
    """Return the arguments that MindSpore's type check names for a function that takes any."""
    node = next(
        n for n in ast.walk(_tree(root("mindspore") / file)) if isinstance(n, ast.FunctionDef) and n.name == name
    )
    calls = [decorator for decorator in node.decorator_list if isinstance(decorator, ast.Call)]
    return {word.arg for call in calls for word in call.keywords if word.arg}


def _decorated_words(file: str) -> set[str]:
    calls = [n for n in ast.walk(_tree(root() / file)) if isinstance(n, ast.Call)]
    return {word.arg for call in calls for word in call.keywords if word.arg}


def _fields(file: str) -> set[str]:
    """Return the annotated fields of a file's classes."""
    return {
        part.target.id
        for node in ast.walk(_tree(root() / file))
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }


def _mapped(file: str) -> set[str]:
    """Return the keys of a file's dictionaries: what a configuration's names are turned into."""
    dictionaries = [node for node in ast.walk(_tree(root() / file)) if isinstance(node, ast.Dict)]
    return {
        key.value
        for node in dictionaries
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def class_file(name: str) -> str | None:
    """Return the file in which mindformers registers a class of this name, if it does."""
    for file in root().rglob("*.py"):
        text = file.read_text(encoding="utf-8", errors="replace")
        if f"class {name}(" in text and "MindFormerRegister.register" in text:
            return file.relative_to(root()).as_posix()
    return None
