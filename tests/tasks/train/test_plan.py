"""Memory, time and layouts against figures worked out by hand for Llama 2 7B."""

from dataclasses import replace
from pathlib import Path

import pytest

from configs.load import load_config
from configs.training import ModelConfig, TrainingConfig, preset_names
from tasks.check import check_config
from tasks.train.job import TrainingJob
from tasks.train.layouts import try_layouts, with_layout
from tasks.train.memory import count_parameters, device_memory, flops_a_token, states_a_parameter
from tasks.train.mindformers_yaml import mindformers_config
from tasks.train.rules import check_yaml
from tests.conftest import PROJECT, RunCommand
from tests.tasks.train.jobs import make_job

SEVEN, SEQ, VOCAB = ModelConfig.model_validate({"preset": "llama2-7b"}), 4096, 32000


def ascend(**settings: object) -> TrainingConfig:
    given = {"device": "Ascend", "workers": 32, "device_memory": "64GB", "precision": "bf16", "batch_size": 1}
    return TrainingConfig.model_validate(given | {"recompute": "full"} | settings)


def test_llama2_7b_has_6_738_billion_parameters() -> None:
    """32 layers x (4 x 4096^2 + 3 x 4096 x 11008 + 2 x 4096) + 2 x 32000 x 4096 + 4096."""
    assert count_parameters(SEVEN, VOCAB).total == 6_738_415_616


@pytest.mark.parametrize(
    ("preset", "billions"),
    [
        ("llama-1.3b", 1.345),
        ("llama2-13b", 13.016),
        ("qwen3-0.6b", 0.596),
        ("qwen3-1.7b", 1.721),
        ("qwen3-4b", 4.022),
        ("qwen3-8b", 8.191),
        ("qwen3-14b", 14.768),
        ("qwen3-32b", 32.762),
    ],
)
def test_the_presets_have_the_sizes_of_their_names(preset: str, billions: float) -> None:
    model = ModelConfig.model_validate({"preset": preset})
    assert count_parameters(model, model.vocab_size or 0).total / 1e9 == pytest.approx(billions, abs=0.001)


def test_every_preset_is_tried_above_or_the_demo() -> None:
    assert set(preset_names()) == {
        "demo", "llama-1.3b", "llama2-7b", "llama2-13b",
        *(f"qwen3-{size}" for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b")),
    }  # fmt: skip


def test_states_of_7b_take_80_9_107_8_and_121_3_gigabytes() -> None:
    total = count_parameters(SEVEN, VOCAB).total
    assert [round(total * width / 1e9, 1) for width, _ in states_a_parameter()] == [80.9, 107.8, 121.3]
    for weights, width in (("fp16", 12), ("fp32", 16)):
        memory = device_memory(SEVEN, ascend(weight_precision=weights), SEQ, VOCAB)
        assert memory.states == pytest.approx(total * width)
        assert memory.scheme.startswith(f"{width} bytes a parameter")


def test_data_parallel_alone_does_not_fit_64_gigabytes_and_optimizer_sharding_does() -> None:
    """Also with 12 bytes a parameter: 80.9 GB. Sharded over 32: gradients stay, weights and moments are a 32nd."""
    for weights in ("fp16", "fp32"):
        assert device_memory(SEVEN, ascend(weight_precision=weights), SEQ, VOCAB).fits is False
    sharded = device_memory(SEVEN, ascend(parallel={"optimizer_sharding": True}), SEQ, VOCAB)
    assert sharded.fits is True
    assert sharded.optimizer == pytest.approx(6_738_415_616 * 8 / 32)
    assert sharded.gradients == pytest.approx(6_738_415_616 * 4)


def test_activations_are_those_of_the_formulas() -> None:
    """s = 4096, b = 1, 32 layers: 16 sbh + 8 sbf + 8 sba is 18.78 GiB; 34 sbh 17.0; 2 sbh 1.0 and one layer's 0.59."""
    found = [
        device_memory(SEVEN, ascend(recompute=kind), SEQ, VOCAB).activations / 2**30
        for kind in ("none", "selective", "full")
    ]
    assert found == pytest.approx([18.78, 17.0 + 0.588, 1.0 + 0.588], abs=0.02)


def test_tensor_parallelism_divides_weights_and_a_pipeline_does_not_divide_activations() -> None:
    whole = device_memory(SEVEN, ascend(recompute="none"), SEQ, VOCAB)
    tensor = device_memory(SEVEN, with_layout(ascend(recompute="none"), SEVEN, False, 4, 1), SEQ, VOCAB)
    pipeline = device_memory(SEVEN, with_layout(ascend(recompute="none"), SEVEN, False, 1, 4), SEQ, VOCAB)
    assert tensor.weights == pytest.approx(whole.weights / 4)
    assert pipeline.activations == pytest.approx(whole.activations)  # four micro batches are under way


def job_of(model: ModelConfig, **settings: object) -> TrainingJob:
    job = make_job(Path("KEY"), Path("/data/a.mindrecord"), model=model)
    return replace(job, training=ascend(**settings), vocab_size=VOCAB, seq_length=SEQ)


def test_layouts_are_tried_in_order_and_refused_with_a_reason() -> None:
    tried = try_layouts(job_of(SEVEN))
    assert [layout.taken for layout in tried] == [False, True]
    assert tried[0].because.startswith("refused: 117 GB")
    assert tried[1].name == "data 32 x tensor 1 x pipeline 1, optimizer sharding"
    odd = ModelConfig.model_validate({"preset": "llama2-7b", "num_heads": 30, "hidden_size": 3840, "num_kv_heads": 30})
    small = try_layouts(job_of(odd, device_memory="16GB", workers=8))
    assert any(layout.because.startswith("refused (P3): 30 heads cannot be divided by 4") for layout in small)


def test_layers_that_stages_cannot_share_evenly_go_to_the_later_ones() -> None:
    """30 layers on 4 stages: 7, 7, 8, 8."""
    deep = ModelConfig.model_validate({"preset": "llama2-7b", "num_layers": 30})
    tried = try_layouts(job_of(deep, device_memory="1GB"))
    assert "data 8 x tensor 1 x pipeline 4, optimizer sharding, layer_offset [0, 0, 1, 1]" in [
        one.name for one in tried
    ]


@pytest.mark.parametrize("preset", ["demo", "llama2-13b", "qwen3-0.6b", "qwen3-14b", "qwen3-32b"])
@pytest.mark.parametrize(("devices", "memory"), [(8, "32GB"), (12, "32GB"), (16, "16GB"), (32, "64GB"), (24, "1GB")])
def test_check_accepts_every_layout_that_plan_does_not_refuse_by_a_rule(preset: str, devices: int, memory: str) -> None:
    job = job_of(ModelConfig.model_validate({"preset": preset}), workers=devices, device_memory=memory)
    possible = [layout for layout in try_layouts(job) if not layout.because.startswith("refused (")]
    assert possible
    for layout in possible:
        TrainingConfig.model_validate(layout.training.model_dump())
        content = mindformers_config(replace(job, training=layout.training), 0)
        broken = [found for found in check_yaml(content, devices) if found.rule[0] == "P" and found.severity == "error"]
        assert not broken, layout.name


def test_flops_a_token() -> None:
    """6 N + 12 x 32 x 32 x 128 x 4096 = 46.9 G."""
    assert flops_a_token(SEVEN, SEQ, VOCAB) / 1e9 == pytest.approx(46.9, abs=0.05)


def test_plan_prints_it_all(mindpretrain: RunCommand) -> None:
    done = mindpretrain("plan", "configs/llama2_7b.yaml", "--tokens", "20B")
    assert done.returncode == 0, done.stderr
    for said in ("6.738 B", "80.9 GB", "107.8 GB", "41.7 h", "4,768", "46.9 G", "refused: 117 GB", "taken: 34.8 GB"):
        assert said in done.stdout
    one_server = mindpretrain("plan", "configs/llama2_7b.yaml", "--devices", "8").stdout
    assert "8 copies x batch_size 1 x accumulation 128" in one_server
    assert "data 8 x tensor 1 x pipeline 1, optimizer sharding" in one_server
    wrong = mindpretrain("plan", "configs/llama2_7b.yaml", "--device-memory", "64")
    assert (wrong.returncode, "'64' is no size" in wrong.stderr) == (2, True)


def test_check_refuses_a_layout_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    fits = check_config(load_config("configs/llama2_7b.yaml"))
    assert not any("memory" in error for error in fits.errors)
    alone = check_config(load_config("configs/llama2_7b.yaml", ["training.parallel.optimizer_sharding=false"]))
    assert any("error memory: training.device_memory: 117 GB are needed" in error for error in alone.errors)
