"""What mindformers is told, compared with values worked out by hand: for Ascend the only test, since no NPU is here."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from configs.training import ModelConfig
from tasks.train.job import DatasetFiles
from tasks.train.mindformers_yaml import epochs, mindformers_config, warmup_steps, write
from tests.tasks.train.jobs import make_job

DATASET = Path("/data/tokens.mindrecord")
VALUES = {"betas", "callbacks", "input_columns"}


def keys(value: Any) -> set[str]:
    """Return every key in a nested value."""
    if isinstance(value, list):
        return {key for part in value for key in keys(part)}
    if isinstance(value, dict):
        return set(value) | {key for part in value.values() for key in keys(part)}
    return set()


def test_steps_warm_up_and_epochs_follow_from_the_job() -> None:
    """1,000 sequences in global batches of 4 x 2 are 125 steps an epoch; 300 steps need a third pass."""
    job = make_job(Path("job"), DATASET, sequences=1000, steps=300, workers=2, warmup_share=0.05)
    found = mindformers_config(job, 0)
    assert (warmup_steps(job.training, job.steps), epochs(job)) == (15, 3)
    assert found["runner_config"] == {
        "epochs": 3, "batch_size": 4, "sink_mode": False, "sink_size": 1, "gradient_accumulation_steps": 1,
    }  # fmt: skip
    assert found["lr_schedule"] == {
        "type": "CosineWithWarmUpLR", "learning_rate": 5e-3, "lr_end": 0.0, "warmup_steps": 15, "total_steps": 300,
    }  # fmt: skip


def test_a_last_incomplete_batch_is_no_step_of_an_epoch() -> None:
    """1,003 sequences are still 250 steps of 4, so 251 steps need a second pass."""
    assert [epochs(make_job(Path("job"), DATASET, sequences=1003, steps=steps)) for steps in (250, 251)] == [1, 2]


def test_parallel_keys_appear_with_the_second_worker() -> None:
    one, two = (mindformers_config(make_job(Path("job"), DATASET, workers=count), 0) for count in (1, 2))
    assert (one["use_parallel"], two["use_parallel"]) == (False, True)
    assert two["parallel"] == {"parallel_mode": 0, "gradients_mean": True}
    assert [found["parallel_config"]["data_parallel"] for found in (one, two)] == [1, 2]


def test_a_resumed_training_skips_what_it_has_seen() -> None:
    assert mindformers_config(make_job(Path("job"), DATASET), 20)["data_skip_steps"] == 20


def test_fp16_has_a_dynamic_loss_scale_and_fp32_none() -> None:
    assert mindformers_config(make_job(Path("job"), DATASET), 0)["runner_wrapper"]["scale_sense"] == 1.0
    half = mindformers_config(make_job(Path("job"), DATASET, precision="fp16", loss_scale=4096), 0)
    assert half["runner_wrapper"]["scale_sense"] == {
        "type": "DynamicLossScaleUpdateCell", "loss_scale_value": 4096, "scale_factor": 2, "scale_window": 1000,
    }  # fmt: skip
    assert half["model"]["model_config"]["compute_dtype"] == "float16"


def test_ascend_keeps_its_own_kernels() -> None:
    model = ModelConfig(hidden_size=4096, intermediate_size=11008, num_layers=32, num_heads=32, num_kv_heads=8)
    job = make_job(
        Path("job"), DATASET, sequences=64_000, steps=2000, workers=8, device="Ascend", precision="bf16", model=model
    )
    found = mindformers_config(job, 0)
    assert found["context"] == {"mode": 0, "device_target": "Ascend"}
    assert found["runner_wrapper"]["type"] == "MFTrainOneStepCell"
    assert found["runner_wrapper"]["scale_sense"] == 1.0
    assert (found["parallel_config"]["data_parallel"], found["runner_config"]["epochs"]) == (8, 1)
    written = found["model"]["model_config"]
    assert written["compute_dtype"] == "bfloat16"
    assert (written["use_flash_attention"], written["fused_rms_norm"], written["use_rope_slice"]) == (True, True, False)
    assert (written["n_kv_heads"], written["num_heads"], written["intermediate_size"]) == (8, 32, 11008)


def test_megatron_s_loader_gets_its_blend_and_cuts_it_by_itself() -> None:
    """1,000 sequences in batches of 4 are 250 steps a pass; 300 steps need two passes, which the loader makes one of."""
    files = DatasetFiles("megatron", (Path("/data/train-00000"), Path("/data/train-00001")), (0.75, 0.25))
    job = replace(make_job(Path("/job"), DATASET, sequences=1000, steps=300), dataset=files, eos_id=7, pad_id=8)
    found = mindformers_config(job, 0)
    loader = found["train_dataset"]["data_loader"]
    assert loader["sizes"] == [2000, 0, 0]
    assert loader["config"]["data_path"] == ["0.75000000", "/data/train-00000", "0.25000000", "/data/train-00001"]
    assert (loader["config"]["eod"], loader["config"]["pad"], loader["config"]["seq_length"]) == (7, 8, job.seq_length)
    assert found["train_dataset"]["input_columns"] == ["input_ids", "labels", "loss_mask", "position_ids"]
    assert found["runner_config"]["epochs"] == 1
    model = found["model"]["model_config"]
    assert (model["input_sliced_sig"], model["use_eod_attn_mask_compression"]) == (True, False)


def test_a_reset_at_document_ends_reaches_the_loader_and_the_model() -> None:
    """Up to 200 documents a sequence need 256 places for their ends. A square mask is never asked for: without flash
    attention the model adds it to the scores as it is, and tokens would see what comes after them.
    """
    files = DatasetFiles("megatron", (Path("/data/train-00000"),), (1.0,), reset=True, documents_in_a_sequence=200)
    job = make_job(Path("/job"), DATASET, device="Ascend", precision="bf16")
    found = mindformers_config(replace(job, dataset=files), 0)
    loader = found["train_dataset"]["data_loader"]["config"]
    assert (loader["reset_position_ids"], loader["reset_attention_mask"], loader["eod_mask_loss"]) == (
        True,
        True,
        False,
    )
    assert (loader["create_compressed_eod_mask"], loader["create_attention_mask"]) == (True, False)
    assert loader["eod_pad_length"] == 256
    assert found["train_dataset"]["input_columns"][-1] == "actual_seq_len"
    model = found["model"]["model_config"]
    assert (model["use_eod_attn_mask_compression"], model["use_flash_attention"]) == (True, True)


def test_labels_of_their_own_are_not_shifted_again() -> None:
    files = DatasetFiles("mindrecord", (DATASET,), training_columns=True)
    found = mindformers_config(replace(make_job(Path("/job"), DATASET), dataset=files), 0)
    assert found["train_dataset"]["input_columns"] == ["input_ids", "labels", "loss_mask"]
    assert found["model"]["model_config"]["input_sliced_sig"] is True
    plain = mindformers_config(make_job(Path("/job"), DATASET), 0)
    assert plain["train_dataset"]["input_columns"] == ["input_ids"]
    assert plain["model"]["model_config"]["input_sliced_sig"] is False


def test_small_numbers_stay_numbers_in_the_file(tmp_path: Path) -> None:
    """PyYAML reads `1e-8` as text; `1.0e-08` as a number."""
    job = make_job(tmp_path, DATASET, eps=1e-8, learning_rate=1e-5)
    write(job, 0)
    read = yaml.safe_load((tmp_path / "training.yaml").read_text())
    assert (read["optimizer"]["eps"], read["lr_schedule"]["learning_rate"]) == (1e-8, 1e-5)
    assert read == mindformers_config(job, 0)


def test_mindformers_knows_every_key() -> None:
    """It is silent about unknown ones. Its source is searched, not imported: that would cost seven seconds."""
    place = importlib.util.find_spec("mindformers")
    assert place is not None
    assert place.origin is not None
    source = "\n".join(file.read_text(errors="replace") for file in Path(place.origin).parent.rglob("*.py"))
    words = set(re.findall(r"\w+", source))
    job = make_job(Path("job"), DATASET, workers=2, precision="fp16")
    megatron = replace(job, dataset=DatasetFiles("megatron", (Path("/data/train-00000"),), (1.0,), reset=True))
    loss_scale_of_mindspore = {"loss_scale_value", "scale_factor", "scale_window"}
    for written in (job, megatron):
        assert keys(mindformers_config(written, 0)) - words - loss_scale_of_mindspore == set()
