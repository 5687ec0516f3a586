"""Every rule fires on a YAML that breaks it and on no sound one."""

import copy
from pathlib import Path
from typing import Any

import pytest

from configs.load import load_config
from tasks.train.mindformers_yaml import mindformers_config
from tasks.train.planned import planned_job
from tasks.train.rules import RULES, check_yaml
from tests.conftest import PROJECT

Change = dict[str, Any]

BASE: dict[str, Any] = {
    "use_parallel": True,
    "runner_config": {"epochs": 1, "batch_size": 1, "sink_mode": True, "sink_size": 1, "gradient_accumulation_steps": 4},
    "runner_wrapper": {"type": "MFTrainOneStepCell", "scale_sense": 1.0, "use_clip_grad": True, "max_grad_norm": 1.0},
    "optimizer": {"type": "AdamW", "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
    "lr_schedule": {
        "type": "CosineWithWarmUpLR", "learning_rate": 3e-4, "lr_end": 3e-5, "warmup_ratio": 0.03, "total_steps": -1,
    },
    "train_dataset": {
        "data_loader": {
            "type": "BlendedMegatronDatasetDataLoader",
            "datasets_type": "GPTDataset",
            "sizes": [64000, 0, 0],
            "config": {"seq_length": 4096, "eod": 2, "pad": -1, "data_path": ["0.25", "/data/a", "0.75", "/data/b"]},
        },
        "input_columns": ["input_ids", "labels", "loss_mask", "position_ids"],
    },
    "parallel": {"parallel_mode": 1, "full_batch": False, "dataset_strategy": [[8, 1]] * 4, "gradients_mean": False},
    "parallel_config": {"data_parallel": 8, "model_parallel": 1, "pipeline_stage": 1, "micro_batch_num": 1},
    "recompute_config": {"recompute": True},
    "context": {"mode": 0, "device_target": "Ascend", "ascend_config": {"parallel_speed_up_json_path": "/x/speed.json"}},
    "callbacks": [
        {"type": "MFLossMonitor", "check_for_nan_in_loss_and_grad": True},
        {
            "type": "CheckpointMonitor", "prefix": "llama", "save_checkpoint_steps": 500, "keep_checkpoint_max": 3,
            "integrated_save": False, "checkpoint_format": "safetensors",
        },
    ],
    "model": {
        "arch": {"type": "LlamaForCausalLM"},
        "model_config": {
            "type": "LlamaConfig", "seq_length": 4096, "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
            "num_layers": 32, "num_heads": 32, "n_kv_heads": 8, "eos_token_id": 2, "pad_token_id": -1,
            "compute_dtype": "bfloat16", "param_init_type": "float32", "input_sliced_sig": True, "use_flash_attention": True,
        },
    },
}  # fmt: skip

LAYOUT = "parallel_config"
MODEL = "model.model_config"
CONFIG = "train_dataset.data_loader.config"
MONITOR = "callbacks.1"
BROKEN: list[tuple[str, Change]] = [
    ("P1", {f"{LAYOUT}.model_parallel": 4}),
    ("P2", {"parallel.parallel_mode": 0, "parallel.gradients_mean": True, f"{LAYOUT}.model_parallel": 2}),
    ("P3", {f"{MODEL}.num_heads": 30}),
    ("P3", {f"{LAYOUT}.model_parallel": 3}),
    ("P4", {f"{LAYOUT}.model_parallel": 16}),
    ("P5", {f"{LAYOUT}.model_parallel": 2, f"{MODEL}.intermediate_size": 11009}),
    ("P6", {f"{LAYOUT}.pipeline_stage": 5}),
    ("P6", {f"{LAYOUT}.pipeline_stage": 64}),
    ("P6", {f"{LAYOUT}.pipeline_stage": 5, f"{MODEL}.offset": [1, 1, 0, 0, 1]}),
    ("P6", {f"{LAYOUT}.pipeline_stage": 2, f"{MODEL}.offset": [-16, 16]}),
    ("P7", {f"{LAYOUT}.pipeline_stage": 8, f"{MODEL}.pp_interleave_num": 5}),
    ("P8", {f"{LAYOUT}.pipeline_stage": 4, f"{LAYOUT}.micro_batch_num": 2}),
    ("P8", {f"{LAYOUT}.pipeline_stage": 4, f"{LAYOUT}.micro_batch_num": 8}),
    ("P9", {f"{LAYOUT}.micro_batch_num": 4}),
    ("P10", {f"{LAYOUT}.pipeline_stage": 2, f"{LAYOUT}.micro_batch_num": 8}),
    ("P10", {"parallel.parallel_mode": 0, "parallel.gradients_mean": True}),
    ("P11", {f"{LAYOUT}.model_parallel": 16, f"{MODEL}.n_kv_heads": 32}),
    ("P12", {"parallel.enable_parallel_optimizer": True, f"{MODEL}.vocab_size": 32001}),
    ("P13", {"parallel.parallel_optimizer_config": {"optimizer_weight_shard_size": 3}}),
    ("P14", {f"{LAYOUT}.model_parallel": 2, f"{LAYOUT}.vocab_emb_dp": False, f"{MODEL}.vocab_size": 32001}),
    ("P15", {f"{LAYOUT}.context_parallel": 2, f"{MODEL}.use_flash_attention": False}),
    ("P15", {f"{LAYOUT}.context_parallel": 16, f"{LAYOUT}.context_parallel_algo": "ulysses_cp"}),
    ("P16", {"moe_config": {"expert_num": 8}, f"{LAYOUT}.model_parallel": 2}),
    ("P17", {f"{LAYOUT}.model_parallel": 8, f"{LAYOUT}.use_seq_parallel": True, f"{MODEL}.seq_length": 4092}),
    ("P18", {"use_legacy": False, "micro_batch_interleave_num": 2}),
    ("P19", {f"{LAYOUT}.seq_split_num": 3}),
    ("P20", {"parallel.gradients_mean": True}),
    ("P21", {f"{LAYOUT}.gradient_aggregation_group": 0}),
    ("B1", {"parallel.full_batch": True}),
    ("B2", {"parallel.dataset_strategy": [[4, 1]] * 4}),
    ("B2", {"parallel.dataset_strategy": [[8, 1]] * 3}),
    ("B3", {"train_dataset.batch_size": 4}),
    ("B4", {"parallel.parallel_mode": 0, "parallel.gradients_mean": True, "parallel.full_batch": True}),
    ("B5", {"train_dataset.data_loader.sizes": [16, 0, 0]}),
    ("L1", {"optimizer.eps": "1e-8"}),
    ("L2", {"lr_schedule.warmup_ratio": 3.0}),
    ("L3", {"lr_schedule.warmup_steps": 100}),
    ("L4", {"lr_schedule.total_steps": 100}),
    ("L5", {"lr_schedule.total_steps": 100_000}),
    ("L6", {"lr_schedule.warmup_ratio": 0.5}),
    ("L7", {"optimizer.learning_rate": 1e-4}),
    ("L8", {"optimizer.weight_decay": 0.0}),
    ("L9", {"optimizer.betas": [0.9, 0.999]}),
    ("L10", {"optimizer.type": "AdamWeightDecay"}),
    ("L11", {"lr_schedule.learning_rate": 1e-2}),
    ("L12", {"lr_schedule.type": "WarmUpStableDecayLR", "lr_schedule.warmup_ratio": 0}),
    ("L13", {"runner_wrapper.use_clip_grad": False}),
    ("M1", {f"{MODEL}.compute_dtype": "float16"}),
    ("M3", {f"{MODEL}.compute_dtype": "float16", "runner_wrapper.scale_sense": 1024}),
    ("M4", {"runner_wrapper.scale_sense": {"type": "DynamicLossScaleUpdateCell", "loss_scale_value": 4294967296}}),
    ("M6", {f"{MODEL}.param_init_type": "float16"}),
    ("M7", {f"{MODEL}.hidden_dropout_rate": 0.1}),
    ("C1", {"recompute_config.recompute": [4, 4]}),
    ("C3", {"runner_config.sink_mode": False}),
    ("C3", {"runner_config.sink_size": 2}),
    ("C4", {"context.max_device_memory": "58 GB"}),
    ("C4", {"context.device_target": "GPU"}),
    ("C5", {f"{MODEL}.use_past": True}),
    ("D1", {"train_dataset.data_loader": {"type": "MindDataset", "dataset_dir": "/not/there"}}),
    ("D2", {f"{CONFIG}.data_path": ["0.5", "/data/a", "0.6", "/data/b"]}),
    ("D2", {f"{CONFIG}.data_path": ["1", "/data/a.bin"]}),
    ("D2", {f"{CONFIG}.seq_length": 2048}),
    ("D2", {"context.ascend_config": {}}),
    ("D3", {f"{MODEL}.eos_token_id": 32000}),
    ("D4", {f"{CONFIG}.pad": 2}),
    ("D4", {f"{MODEL}.pad_token_id": 2}),
    ("D5", {f"{CONFIG}.eod": 1}),
    ("D6", {f"{CONFIG}.create_compressed_eod_mask": True}),
    ("D7", {f"{MODEL}.input_sliced_sig": False}),
    ("D9", {f"{MODEL}.seq_length": 1024, f"{CONFIG}.seq_length": 1024, f"{MODEL}.use_attn_mask_compression": True}),
    ("K1", {"callbacks.0.check_for_nan_in_loss_and_grad": False}),
    ("K2", {f"{MONITOR}.integrated_save": True}),
    ("K2", {f"{MONITOR}.prefix": "llama-7b"}),
    ("K2", {f"{MONITOR}.keep_checkpoint_max": 1}),
    ("K3", {"runner_config.sink_size": 3}),
    ("K4", {"resume_training": True}),
    ("K4", {"load_checkpoint": True}),
    ("K4", {"load_checkpoint": "/not/there"}),
    ("K5", {"resume_training": True, "load_checkpoint": "/out/checkpoint_network/rank_0"}),
    ("K6", {"use_parallel": False, "auto_trans_ckpt": True}),
    ("K7", {"use_legacy_format": False, "auto_trans_ckpt": True}),
    ("K8", {"profile": True}),
    ("K9", {"runner_wrapper.use_skip_data_by_global_norm": True, "monitor_config": {"check_for_global_norm": True}}),
    ("K10", {"only_save_strategy": True}),
    ("keys", {"train": {"ckpt_dir": "./output"}}),
    ("keys", {"optimizer.epsilon": 1e-8}),
    ("keys", {"parallel_config.tensor_parallel": 2}),
    ("keys", {"callbacks.1.save_steps": 500}),
]  # fmt: skip


def changed(changes: Change) -> dict[str, Any]:
    """Return the sound YAML with some keys, given by their paths, set otherwise."""
    content = copy.deepcopy(BASE)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place: Any = content
        for parent in parents:
            place = place[int(parent)] if isinstance(place, list) else place.setdefault(parent, {})
        place[last] = value
    return content


def test_a_sound_yaml_breaks_no_rule() -> None:
    assert check_yaml(BASE, devices=8) == []


@pytest.mark.parametrize(("rule", "changes"), BROKEN, ids=[f"{rule}-{place}" for place, (rule, _) in enumerate(BROKEN)])
def test_a_rule_names_what_breaks_it(rule: str, changes: Change) -> None:
    found = check_yaml(changed(changes), devices=8 if rule == "P1" else None, servers=1)
    named = [finding for finding in found if finding.rule == rule]
    assert named
    assert all(finding.found and finding.mend for finding in named)


def test_every_rule_has_a_yaml_that_breaks_it() -> None:
    tried = {rule for rule, _ in BROKEN} - {"keys"}
    assert {rule.name for rule in RULES} - tried == {"K11"}
    assert "K11" in {finding.rule for finding in check_yaml({"checkpoint": {}, "run_mode": "train"})}


def test_severities_are_those_of_what_mindformers_does() -> None:
    """What it refuses or silently makes another training is an error; what only wastes something, a warning."""
    severity = {finding.rule: finding.severity for rule, change in BROKEN for finding in check_yaml(changed(change))}
    assert [severity[rule] for rule in ("P3", "P10", "B2", "L1", "D4", "K4")] == ["error"] * 6
    assert [severity[rule] for rule in ("P20", "L9", "M6", "K8")] == ["warning"] * 4


def test_the_recipe_of_the_article_is_refused_key_by_key_with_the_real_keys() -> None:
    recipe = {
        "train": {"mixed_precision": True, "amp_level": "O2", "loss_scale": 1024, "ckpt_dir": "./output/ckpt"},
        "optimizer": {"type": "AdamWeightDecay", "beta1": 0.9, "epsilon": "1e-8", "weight_decay": 0.1},
        "model": {"LlamaConfig": {"recompute": True}},
        "grad_clip": 1.0,
        "load_checkpoint": True,
    }
    found = {finding.key: finding.mend for finding in check_yaml(recipe, devices=1)}
    assert "runner_wrapper.scale_sense" in found["train.loss_scale"]
    assert "compute_dtype" in found["train.mixed_precision"]
    assert "CheckpointMonitor" in found["train.ckpt_dir"]
    assert "eps: 1.e-8" in found["optimizer.epsilon"]
    assert "recompute_config.recompute" in found["model.LlamaConfig"]
    assert "use_clip_grad" in found["grad_clip"]
    assert found["optimizer.type"] == "write AdamW"
    assert "resume_training: True" in found["load_checkpoint"]


@pytest.mark.parametrize("overrides", [(), ("training.workers=8", "training.hosts=[]")])
def test_the_shipped_7b_configuration_breaks_no_rule(
    overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    config = load_config("configs/llama2_7b.yaml", overrides)
    found = check_yaml(mindformers_config(planned_job(config).job, 0), config.training.workers, 4)
    assert [finding for finding in found if finding.rule not in ("K4", "D1")] == []  # weights and data are not there


def test_a_mindrecord_without_its_db_and_a_bare_bin_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.mindrecord").write_bytes(b"x")
    (tmp_path / "b.bin").write_bytes(b"x")
    for name, message in (("a.mindrecord", "a.mindrecord.db is missing"), ("b.bin", "b.bin is no MindRecord")):
        loader = {"type": "MindDataset", "dataset_files": [str(tmp_path / name)]}
        found = check_yaml(changed({"train_dataset.data_loader": loader}))
        assert any(message in finding.found for finding in found if finding.rule == "D1")
