"""The dataset (D)."""

import json
from collections.abc import Iterator
from pathlib import Path

from tasks.train.rules.finding import Problem, Rule
from tasks.train.rules.view import View

LOADER = "train_dataset.data_loader"
MIN_COMPRESSED = 2048


def d1(v: View) -> Iterator[Problem]:
    if v.loader.get("type") != "MindDataset":
        return
    files = v.loader.get("dataset_files") or v.loader.get("dataset_dir")
    places = [Path(str(place)) for place in (files if isinstance(files, list) else [files] if files else [])]
    if not places:
        yield (LOADER, "neither dataset_dir nor dataset_files", "name the MindRecord file or its folder")
    for place in places:
        found = sorted(place.glob("*.mindrecord")) if place.is_dir() else [place]
        if place.suffix == ".bin":
            yield (
                f"{LOADER}.dataset_files",
                f"{place} is no MindRecord",
                "write MindRecord, or use the Megatron loader",
            )
        elif not place.exists() or not found:
            yield (f"{LOADER}.dataset_files", f"{place} is not there", "name the MindRecord file or its folder")
        for file in found:
            if file.exists() and not file.with_name(f"{file.name}.db").exists():
                yield (f"{LOADER}.dataset_files", f"{file}.db is missing", "copy it too, or run pack again")


def d2(v: View) -> Iterator[Problem]:
    config = v.megatron
    if config is None:
        return
    blend = config.get("data_path") or []
    shares = [float(share) for share in blend[::2] if _is_share(share)]
    if not blend or len(blend) % 2 or len(shares) * 2 != len(blend):
        yield (f"{LOADER}.config.data_path", f"{blend}", "alternate share and prefix, such as ['1', /data/train]")
    elif abs(sum(shares) - 1) > 1e-3:
        yield (f"{LOADER}.config.data_path", f"the shares add up to {sum(shares):g}", "make them add up to 1")
    if any(str(prefix).endswith((".bin", ".idx")) for prefix in blend[1::2]):
        yield (f"{LOADER}.config.data_path", "a prefix with .bin or .idx", "leave the ending out")
    if config.get("seq_length") != v.of_model("seq_length"):
        found = f"{config.get('seq_length')}, the model's is {v.of_model('seq_length')}"
        yield (f"{LOADER}.config.seq_length", found, "make them equal")


def d2_broadcast(v: View) -> Iterator[Problem]:
    if v.megatron is None or not v.semi_auto:
        return
    options = v.section("context").get("ascend_config") or {}
    place = options.get("parallel_speed_up_json_path") or v.section("context").get("parallel_speed_up_json_path")
    if place is None:
        yield ("context.ascend_config.parallel_speed_up_json_path", "missing", "name a file with it")
        return
    file = Path(str(place))
    if file.is_file() and json.loads(file.read_text(encoding="utf-8")).get("dataset_broadcast_opt_level", 0) < 3:
        yield ("context.ascend_config.parallel_speed_up_json_path", f"{place} has less", "write it there")


def d4(v: View) -> Iterator[Problem]:
    config = v.megatron or {}
    for key, pad, end in (
        (f"{LOADER}.config.pad", config.get("pad"), config.get("eod")),
        ("model.model_config.pad_token_id", v.model.get("pad_token_id"), v.model.get("eos_token_id")),
    ):
        if pad is not None and pad == end:
            yield (key, f"{pad} is also the end of a document", "give padding another id, or -1 for none")


def d5(v: View) -> Iterator[Problem]:
    config = v.megatron or {}
    for ours, theirs in (("eod", "eos_token_id"), ("pad", "pad_token_id")):
        if ours in config and theirs in v.model and config[ours] != v.model[theirs]:
            yield (
                f"{LOADER}.config.{ours}",
                f"{config[ours]}, the model's {theirs} is {v.model[theirs]}",
                "make them equal",
            )


def d3(v: View) -> Iterator[Problem]:
    size, config = v.of_model("vocab_size"), v.megatron or {}
    for name in ("eos_token_id", "bos_token_id", "pad_token_id"):
        found = v.model.get(name)
        if size and isinstance(found, int) and found >= size:
            yield (f"model.model_config.{name}", f"{found} in a vocabulary of {size}", "use the tokenizer's own ids")
    if size and isinstance(config.get("eod"), int) and config["eod"] >= size:
        yield (f"{LOADER}.config.eod", f"{config['eod']} in a vocabulary of {size}", "use the tokenizer's own id")


def d6(v: View) -> Iterator[Problem]:
    config, columns = v.megatron, v.dataset.get("input_columns") or []
    if config is None:
        return
    wanted = ["input_ids", "labels", "loss_mask", "position_ids"]
    if config.get("create_compressed_eod_mask"):
        wanted.append("actual_seq_len")
    elif config.get("create_attention_mask"):
        wanted.append("attention_mask")
    if columns != wanted:
        yield ("train_dataset.input_columns", f"{columns}", f"write {wanted}")


def d7(v: View) -> Iterator[Problem]:
    if v.megatron is not None and v.legacy and not v.model.get("input_sliced_sig"):
        yield ("model.model_config.input_sliced_sig", "False with labels of their own", "write True")


def d9(v: View) -> Iterator[Problem]:
    length = v.of_model("seq_length") or 0
    if v.model.get("use_attn_mask_compression") and length <= MIN_COMPRESSED:
        yield ("model.model_config.use_attn_mask_compression", f"on with {length} tokens", "write False")


def _is_share(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True


RULES = (
    Rule("D1", "error", "MindDataset reads MindRecord with its .db alone", d1),
    Rule("D2", "error", "the Megatron loader refuses it", d2),
    Rule("D2", "error", "the loader needs dataset_broadcast_opt_level 3", d2_broadcast),
    Rule("D3", "error", "larger ids read memory that is not the embedding's", d3),
    Rule("D4", "error", "the loss leaves padding out, so the model never learns where a document ends", d4),
    Rule("D5", "error", "the model and the data must mean the same tokens", d5),
    Rule("D6", "error", "the loader gives other columns", d6),
    Rule("D7", "error", "labels would be shifted twice", d7),
    Rule("D9", "error", "masks are compressed only above 2048 tokens", d9),
)
