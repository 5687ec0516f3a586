"""The YAML for layouts that cannot run here: kept as files that one can read, and put through mindformers' own classes.

`UPDATE_GOLDEN=1` writes the files anew.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.load import load_config
from configs.training import ModelConfig
from tasks.train import launch
from tasks.train.job import DatasetFiles, TrainingFailed, TrainingJob
from tasks.train.mindformers_yaml import decay_start, mindformers_config, with_origins
from tasks.train.msrun import command_lines, environment, settings
from tasks.train.planned import planned_job
from tests.conftest import PROJECT, RunCommand
from tests.tasks.train.jobs import make_job

GOLDEN = PROJECT / "tests" / "golden" / "yaml"
SEVEN = "configs/llama2_7b.yaml"
ONE_SERVER = ("training.workers=8", "training.hosts=[]", "training.global_batch_tokens=1048576")
PIPELINE = (
    "training.parallel.tensor=8", "training.parallel.pipeline=4", "training.parallel.optimizer_sharding=false",
    "training.parallel.sequence=true", "training.global_batch_tokens=65536", "training.schedule=wsd", "model.init=scratch",
    "model.init_from=null", "training.precision=fp16",
)  # fmt: skip


def seven(*overrides: str) -> TrainingJob:
    job = planned_job(load_config(SEVEN, overrides)).job
    return replace(
        job,
        folder=Path("/runs/artifacts/pretrain/KEY"),
        dataset=DatasetFiles("mindrecord", (Path("/data/a.mindrecord"),)),
    )


def qwen() -> TrainingJob:
    """Qwen3 8B on Megatron data: tensor 4, pipeline 2, 128 sequences a step."""
    job = make_job(
        Path("/runs/artifacts/pretrain/KEY"), Path("/data/a.mindrecord"), device="Ascend", precision="bf16", workers=8,
        batch_size=1, device_memory="64GB", parallel={"tensor": 4, "pipeline": 2, "sequence": True},
        gradient_accumulation=128, recompute="selective", sequences=64_000, steps=500, checkpoint_every=100,
        learning_rate=3e-4,
    )  # fmt: skip
    model = ModelConfig.model_validate({"preset": "qwen3-8b"})
    dataset = DatasetFiles("megatron", (Path("/data/train-00000"),), (1.0,))
    return replace(job, model=model, dataset=dataset, vocab_size=151936, seq_length=4096, eos_id=151643, pad_id=-1)


JOBS = {
    "llama2_7b_1x8": lambda: seven(*ONE_SERVER),
    "llama2_7b_4x8": seven,
    "llama2_7b_4x8_tensor8_pipeline4": lambda: seven(*PIPELINE),
    "qwen3_8b_tensor4_pipeline2": qwen,
}


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)


def written(content: dict[str, Any]) -> str:
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True)).replace(str(PROJECT), "/project")


@pytest.mark.parametrize("name", JOBS)
def test_the_yaml_is_the_one_that_was_read_and_found_right(name: str) -> None:
    file, content = GOLDEN / f"{name}.yaml", written(mindformers_config(JOBS[name](), 0))
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(content, encoding="utf-8")
    assert content == file.read_text(encoding="utf-8")


def test_mindformers_own_classes_know_every_key(tmp_path: Path) -> None:
    script = [sys.executable, str(Path(__file__).with_name("known_keys.py")), str(tmp_path)]
    files = sorted(map(str, GOLDEN.glob("*.yaml")))
    done = subprocess.run([*script, *files], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    broken = tmp_path / "broken.yaml"
    content = yaml.safe_load(Path(files[0]).read_text())
    broken.write_text(yaml.safe_dump(content | {"optimizer": content["optimizer"] | {"epsilon": 1e-8}}))
    done = subprocess.run([*script, str(broken)], env=environment(), capture_output=True, text=True, check=False)
    assert "AdamW does not take {'epsilon'}" in done.stderr


def test_the_layouts_of_one_server_and_of_four() -> None:
    """4,194,304 tokens are 1,024 sequences of 4,096: 32 copies x 32 micro batches, or 8 x 32 of a quarter of that."""
    four, one = (mindformers_config(job, 0) for job in (seven(), seven(*ONE_SERVER)))
    assert [found["parallel_config"]["data_parallel"] for found in (four, one)] == [32, 8]
    assert [found["runner_config"]["gradient_accumulation_steps"] for found in (four, one)] == [32, 32]
    for found in (four, one):
        assert found["parallel"]["parallel_mode"] == 1
        assert found["parallel"]["enable_parallel_optimizer"] is True
        assert found["runner_wrapper"]["type"] == "MFPipelineWithLossScaleCell"
        assert found["runner_config"]["sink_mode"] is True
        assert found["context"]["max_device_memory"] == "58GB"
        assert found["recompute_config"]["recompute"] is True


def test_a_pipeline_takes_its_micro_batches_instead_of_accumulation() -> None:
    """65,536 tokens are 16 sequences for one copy: 16 micro batches in 4 stages."""
    found = mindformers_config(seven(*PIPELINE), 0)
    assert found["parallel_config"] | {"vocab_emb_dp": True, "gradient_aggregation_group": 4} == {
        "data_parallel": 1, "model_parallel": 8, "context_parallel": 1, "pipeline_stage": 4, "micro_batch_num": 16,
        "use_seq_parallel": True, "vocab_emb_dp": True, "gradient_aggregation_group": 4,
    }  # fmt: skip
    assert found["runner_config"]["gradient_accumulation_steps"] == 1
    schedule = found["lr_schedule"]
    assert (schedule["type"], schedule["warmup_steps"], schedule["decay_start_steps"]) == (
        "WarmUpStableDecayLR",
        30,
        900,
    )


def test_wsd_has_a_warm_up_of_one_step_at_least() -> None:
    """mindformers' schedule divides the step by itself outside the warm-up, which at step 0 is no number."""
    job = make_job(Path("job"), Path("/data/a.mindrecord"), schedule="wsd", warmup_share=0.0, steps=100)
    assert mindformers_config(job, 0)["lr_schedule"]["warmup_steps"] == 1
    assert decay_start(job.training, 100) == 90


def test_what_spreads_the_network_leaves_weights_checkpoints_and_evaluation_to_mindformers(tmp_path: Path) -> None:
    """Also where all devices are copies (optimizer sharding): none holds the whole, each may be given the whole batch."""
    job = replace(seven(), folder=tmp_path, evaluation_sequences=64)
    job = replace(job, dataset=replace(job.dataset, held_out=(Path("/data/held_out.mindrecord"),)))
    assert job.training.data_parallel == job.training.workers == 32
    launch.prepare(job, None, 0)
    state = json.loads((tmp_path / "job.json").read_text())
    assert [state[name] for name in ("init_weights", "checkpoint_every", "held_out", "rows")] == [None, None, [], None]
    assert state["accumulation"] == 1
    alone = make_job(
        tmp_path, Path("/data/a.mindrecord"), gradient_accumulation=2, init_weights=Path("/data/w.safetensors")
    )
    launch.prepare(alone, None, 0)
    state = json.loads((tmp_path / "job.json").read_text())
    assert (state["init_weights"], state["rows"], state["accumulation"]) == ("/data/w.safetensors", 8, 2)


def test_a_distributed_checkpoint_is_not_gone_on_from_on_another_curve(tmp_path: Path) -> None:
    job = replace(qwen(), folder=tmp_path)
    latest = tmp_path / "distributed" / "checkpoint" / "latest_checkpointed_iteration.txt"
    latest.parent.mkdir(parents=True)
    launch._check_curve(job)
    latest.write_text("300")
    launch._check_curve(job)
    with pytest.raises(TrainingFailed, match=r"steps was 500, is 1000\. The learning rate of step 300 would jump"):
        launch._check_curve(replace(job, steps=1000))


def test_an_interrupted_distributed_training_goes_on_from_mindformers_own_checkpoint() -> None:
    first, later = mindformers_config(qwen(), 0), mindformers_config(qwen(), 300)
    assert (first["load_checkpoint"], first["resume_training"], first["use_legacy_format"]) == ("", False, False)
    assert later["load_checkpoint"] == "/runs/artifacts/pretrain/KEY/distributed/checkpoint"
    assert later["resume_training"] is True


def test_every_value_says_where_it_comes_from(mindpretrain: RunCommand) -> None:
    lines = mindpretrain("yaml", SEVEN).stdout.splitlines()
    shown = [line.strip() for line in lines]
    for line in (
        "hidden_size: 4096  # preset llama2-7b model.hidden_size",
        "learning_rate: 1.0e-05  # config training.learning_rate",
        "eps: 1.0e-08  # default training.eps",
        "gradient_accumulation_steps: 32  # config training.global_batch_tokens",
        "sink_mode: true  # derived",
    ):
        assert line in shown
    body = [line for line in lines if not line.startswith("#")]
    read = yaml.safe_load("\n".join(body))
    assert read["optimizer"]["eps"] == 1e-8
    assert any(line.startswith("# node3: PYTHONPATH=") and "--node_rank=3" in line for line in lines)


def test_the_lines_are_the_yaml_itself() -> None:
    for build in JOBS.values():
        assert yaml.safe_load("\n".join(with_origins(build()))) == mindformers_config(build(), 0)


def test_hosts_wait_for_one_another_as_long_as_their_number_needs() -> None:
    many = seven(
        "training.workers=256", "training.global_batch_tokens=null", "training.parallel.optimizer_sharding=true"
    )
    assert settings(many.training)["MS_NODE_TIMEOUT"] == "1800"
    assert settings(seven().training)["HCCL_CONNECT_TIMEOUT"] == "1800"
    lines = command_lines(seven())
    assert [host for host, _ in lines] == ["node0", "node1", "node2", "node3"]
    assert all("--worker_num=32 --local_worker_num=8 --master_addr=node0" in line for _, line in lines)
    one = command_lines(make_job(Path("/job"), Path("/data/a.mindrecord")))
    assert "msrun" not in one[0][1]  # msrun takes one worker for a failed one
