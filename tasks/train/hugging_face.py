"""Llama weights between mindformers' names and those of Hugging Face: `export` for use elsewhere, import for training on.

Both keep rotary embedding in halves and matrices as (out, in), so weights only change their names.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import save_file

from configs.errors import PipelineError
from configs.training import ModelConfig
from tasks.files import atomic_path, write_json

Array = npt.NDArray[Any]

NAMES = (
    ("model.embed_tokens.weight", "model.tok_embeddings.embedding_weight"),
    ("model.norm.weight", "model.norm_out.weight"),
    ("lm_head.weight", "lm_head.weight"),
)
LAYER_NAMES = (
    ("self_attn.q_proj.weight", "attention.wq.weight"),
    ("self_attn.k_proj.weight", "attention.wk.weight"),
    ("self_attn.v_proj.weight", "attention.wv.weight"),
    ("self_attn.o_proj.weight", "attention.wo.weight"),
    ("mlp.gate_proj.weight", "feed_forward.w1.weight"),
    ("mlp.down_proj.weight", "feed_forward.w2.weight"),
    ("mlp.up_proj.weight", "feed_forward.w3.weight"),
    ("input_layernorm.weight", "attention_norm.weight"),
    ("post_attention_layernorm.weight", "ffn_norm.weight"),
)
DROPPED = re.compile(r"rotary_emb\.inv_freq$")
"""Older folders keep the rotary frequencies as weights; they follow from rope_theta."""
MAX_SHARD_BYTES = 4 * 2**30
SIZES = {
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "rope_theta": "rope_theta",
    "rms_norm_eps": "rms_norm_eps",
}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json")


def parameter_names(layers: int) -> dict[str, str]:
    """Return Hugging Face's name to mindformers' name of every parameter of a Llama."""
    inner = {
        f"model.layers.{layer}.{theirs}": f"model.layers.{layer}.{ours}"
        for layer in range(layers)
        for theirs, ours in LAYER_NAMES
    }
    return dict(NAMES) | inner


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a Hugging Face folder.

    Raises:
        PipelineError: there are none, or one that the index names is missing.
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        files = [folder / name for name in names]
    else:
        files = sorted(folder.glob("*.safetensors"))
    missing = [file for file in files if not file.is_file()]
    if missing or not files:
        what = f"{missing[0].name}, which its index names, is missing" if missing else "no *.safetensors there"
        raise PipelineError(
            f"model.init_from: {folder}: {what}; expected a Hugging Face folder with safetensors weights"
        )
    return files


def import_folder(folder: Path, model: ModelConfig, vocab_size: int, target: Path) -> Path:
    """Write the weights of a Hugging Face Llama folder as one safetensors file under mindformers' names; return it.

    A vocabulary of the model larger than the folder's gets rows of the mean embedding; a smaller one is refused.

    Raises:
        PipelineError: another architecture or other sizes than the model section's, or a weight is missing or unknown.
    """
    _check_sizes(folder, model)
    names = parameter_names(model.num_layers)
    rows = model.vocab_size or vocab_size
    found: dict[str, Array] = {}
    for name, array in _tensors(weight_files(folder)):
        if DROPPED.search(name):
            continue
        if name not in names:
            raise PipelineError(
                f"model.init_from: {folder}: has the weight {name}, which a Llama of {model.num_layers} layers has not; "
                "give the model section the folder's own sizes"
            )
        found[names[name]] = array.astype(np.float32)
    if "lm_head.weight" not in found and "model.tok_embeddings.embedding_weight" in found:
        found["lm_head.weight"] = found["model.tok_embeddings.embedding_weight"].copy()  # tied in the folder
    if missing := sorted(set(names.values()) - found.keys()):
        raise PipelineError(f"model.init_from: {folder}: lacks {len(missing)} weights, the first being {missing[0]}")
    for name in ("model.tok_embeddings.embedding_weight", "lm_head.weight"):
        found[name] = _with_rows(found[name], rows, folder)
    with atomic_path(target) as temporary:
        save_file(found, temporary)
    return target


def export_folder(
    weights: Path, model: ModelConfig, details: dict[str, Any], tokenizer: Path, target: Path
) -> list[Path]:
    """Write a checkpoint's weights as a Hugging Face folder, with its config.json and tokenizer; return the files.

    `details`: seq_length, vocab_size, eos_id, bos_id and pad_id, as the pack artifact has them. Weights keep their type.

    Raises:
        PipelineError: the folder is there already, or a weight is missing.
    """
    if target.exists() and any(target.iterdir()):
        raise PipelineError(f"{target}: is there already and not empty; name a new folder")
    target.mkdir(parents=True, exist_ok=True)
    names = parameter_names(model.num_layers)
    with safe_open(weights, "np") as source:
        missing = sorted(set(names.values()) - set(source.keys()))
        if missing:
            raise PipelineError(f"{weights}: lacks {missing[0]}; is it a checkpoint of this model?")
        shards = _shards({theirs: _bytes_of(source.get_slice(ours)) for theirs, ours in names.items()})
        files: dict[str, str] = {}
        for number, shard in enumerate(shards, 1):
            one = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            name = "model.safetensors" if len(shards) == 1 else one
            with atomic_path(target / name) as temporary:
                save_file(
                    {theirs: source.get_tensor(names[theirs]) for theirs in shard}, temporary, metadata={"format": "pt"}
                )
            files |= dict.fromkeys(shard, name)
        kind = str(source.get_tensor(names[NAMES[0][0]]).dtype)
    if len(shards) > 1:
        write_json(target / "model.safetensors.index.json", {"metadata": {}, "weight_map": files})
    write_json(target / "config.json", _config(model, details, kind))
    for name in TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, target / name)
    return sorted(target.iterdir())


def _config(model: ModelConfig, details: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return config.json of a Llama, as transformers 4 reads it."""
    tokens = {f"{name}_token_id": details[f"{name}_id"] for name in ("bos", "eos", "pad") if details[f"{name}_id"] >= 0}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_length,
        "max_position_embeddings": details["seq_length"],
        "vocab_size": details["vocab_size"],
        "rope_theta": model.rope_theta,
        "rms_norm_eps": model.rms_norm_eps,
        "initializer_range": model.initializer_range,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": kind,
        **tokens,
    }


def _check_sizes(folder: Path, model: ModelConfig) -> None:
    file = folder / "config.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise PipelineError(f"model.init_from: {file}: missing or no JSON; expected a Hugging Face folder") from None
    if found.get("model_type") != "llama":
        raise PipelineError(f"model.init_from: {file}: model_type is {found.get('model_type')!r}, expected 'llama'")
    found.setdefault("num_key_value_heads", found.get("num_attention_heads"))
    found.setdefault("rope_theta", (found.get("rope_parameters") or {}).get("rope_theta", 10000.0))
    if (scaling := found.get("rope_scaling")) and scaling.get("rope_type", scaling.get("type")) not in (
        None,
        "default",
    ):
        raise PipelineError(
            f"model.init_from: {file}: rope_scaling {scaling} is not supported; choose a Llama without it"
        )
    wrong = [
        f"{ours.replace('kv_heads', 'num_kv_heads')} is {getattr(model, ours)}, the folder's {theirs} {found.get(theirs)}"
        for ours, theirs in SIZES.items()
        if found.get(theirs) != getattr(model, ours)
    ]
    if wrong:
        raise PipelineError(f"model.init_from: {file}: {'; '.join(wrong)}; give the model section the folder's sizes")


def _tensors(files: list[Path]) -> Iterator[tuple[str, Array]]:
    """Yield name and content of each tensor; bfloat16, which NumPy lacks, as float32."""
    for file in files:
        try:
            with safe_open(file, "np") as source:
                kinds = {name: source.get_slice(name).get_dtype() for name in source.keys()}  # noqa: SIM118 - no mapping
                for name, kind in kinds.items():
                    yield name, _bfloat16(file, name) if kind == "BF16" else source.get_tensor(name)
        except Exception as error:
            if type(error).__name__ != "SafetensorError":
                raise
            raise PipelineError(f"{file}: damaged or half written ({error}); fetch it again") from None


def _bfloat16(file: Path, name: str) -> Array:
    """Return a bfloat16 tensor as float32, whose upper half it is. Format: github.com/huggingface/safetensors."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))[name]
    start, end = header["data_offsets"]
    half = np.memmap(file, np.uint16, "r", offset=8 + length + start, shape=((end - start) // 2,))
    return (half.astype(np.uint32) << 16).view(np.float32).reshape(header["shape"])


def _with_rows(embedding: Array, rows: int, folder: Path) -> Array:
    if len(embedding) > rows:
        raise PipelineError(
            f"model.init_from: {folder}: its vocabulary has {len(embedding)} rows, the model's {rows}; write "
            f"model.vocab_size: {len(embedding)}, and use the folder's own tokenizer"
        )
    added = np.broadcast_to(embedding.mean(axis=0), (rows - len(embedding), embedding.shape[1]))
    return np.concatenate([embedding, added.astype(embedding.dtype)])


def _bytes_of(tensor: Any) -> int:
    width = {"F32": 4, "F16": 2, "BF16": 2}.get(tensor.get_dtype(), 4)
    return int(np.prod(tensor.get_shape(), dtype=np.int64)) * width


def _shards(sizes: dict[str, int]) -> list[list[str]]:
    """Return names in order, grouped into files of at most `MAX_SHARD_BYTES`."""
    groups: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if groups[-1] and filled + size > MAX_SHARD_BYTES:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += size
    return groups
