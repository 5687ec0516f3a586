"""A checkpoint that leaves for Hugging Face computes there what it computes here, and a Llama from there trains on here."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from configs.errors import PipelineError
from configs.training import ModelConfig
from tasks import pretrain, smoke
from tasks.artifact import Artifact, Workspace
from tasks.executor import LocalExecutor
from tasks.pack.dataset import Dataset
from tasks.stage import build_artifact
from tasks.train.checkpoints import WEIGHTS, find_checkpoint
from tasks.train.export import export_checkpoint
from tasks.train.hugging_face import import_folder, parameter_names
from tasks.train.msrun import environment
from tests.conftest import PROJECT, build_chain
from tests.tasks.pack.conftest import STAGES, sample_config
from tests.tasks.train.jobs import VOCABULARY, make_job, run

TORCH = PROJECT / ".torch" / "bin" / "python"
HERE = Path(__file__).parent
TEXTS = 20
TRAINING = {"batch_size": 4, "learning_rate": 3e-3}


@pytest.fixture
def torch() -> Path:
    if not TORCH.exists():
        pytest.skip(f"{TORCH} is not there: `make test` sets it up")
    return TORCH


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The demo's model after 40 steps on the sample, with its tokenizer, a held-out evaluation, and a sample text."""
    workspace = tmp_path_factory.mktemp("trained")
    config = sample_config(
        workspace,
        held_out_share=0.1,
        model={"preset": "demo"},
        training=TRAINING,
        pretrain={"steps": 40, "checkpoint_every": 20, "evaluate_every": 20, "sample_tokens": 8},
    )
    dataset = build_chain(config, *STAGES)[-1]
    return Workspace(workspace).open(build_artifact(pretrain.STAGE, config, [dataset.manifest], LocalExecutor()))


def test_an_exported_checkpoint_gives_the_same_logits_and_ids_in_transformers(
    trained: Artifact, torch: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "exported"
    files = {file.name for file in export_checkpoint(trained.folder, folder)}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= files

    pack = Dataset(trained.folder.parents[1] / "pack" / trained.manifest.inputs[0])
    texts = [pack.tokenizer.decode(pack.sequence(number)[:40].tolist()) for number in range(TEXTS)]
    texts = [text.replace("<|endoftext|>", "") for text in texts]  # there it is a control token, here it is text
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    script = [
        str(torch),
        str(HERE / "torch_logits.py"),
        str(folder),
        str(tmp_path / "texts.json"),
        str(tmp_path / "theirs"),
    ]
    subprocess.run(script, check=True, capture_output=True)
    theirs = json.loads((tmp_path / "theirs.json").read_text())
    ours = [ids.tolist() for ids in pack.tokenizer.encode(texts)]
    assert theirs["ids"] == ours
    assert theirs["eos"] == pack.header["eos"]

    np.save(tmp_path / "ids.npy", np.array([ids[:24] for ids in ours]))
    weights = find_checkpoint(trained.folder) / WEIGHTS
    script = [sys.executable, str(HERE / "mindformers_logits.py"), str(trained.folder / "training.yaml"), str(weights)]
    subprocess.run([*script, str(tmp_path / "ids.npy"), str(tmp_path / "ours.npy")], check=True, env=environment())
    found, expected = np.load(tmp_path / "theirs.npy"), np.load(tmp_path / "ours.npy")
    assert found.shape == expected.shape == (TEXTS, 24, 1500)
    assert np.abs(found - expected).max() < 1e-4
    assert expected.std() > 0.5  # a trained model has preferences


def test_a_llama_of_transformers_trains_on(torch: Path, dataset: Path, tmp_path: Path) -> None:
    """Made by transformers in several files, in both types."""
    model = ModelConfig(hidden_size=64, intermediate_size=128, num_layers=2, num_heads=4, num_kv_heads=2)
    imported = {}
    for dtype in ("float32", "bfloat16"):
        folder = tmp_path / dtype
        subprocess.run([str(torch), str(HERE / "make_llama.py"), str(folder), dtype], check=True, capture_output=True)
        assert len(list(folder.glob("*.safetensors"))) > 1
        imported[dtype] = import_folder(folder, model, VOCABULARY, tmp_path / f"{dtype}.safetensors")
    exact, rounded = (load_file(file) for file in imported.values())
    assert all(np.allclose(exact[name], rounded[name], rtol=2**-8) for name in exact)
    steps = run(make_job(tmp_path / "job", dataset, steps=40, model=model, init_weights=imported["float32"]))
    assert steps[0].loss == pytest.approx(np.log(VOCABULARY), abs=0.1)
    assert steps[-1].loss < 0.8 * steps[0].loss


def test_names_go_there_and_back_for_every_parameter(trained: Artifact) -> None:
    weights = load_file(find_checkpoint(trained.folder) / WEIGHTS)
    names = parameter_names(2)
    assert set(names.values()) == set(weights)
    assert len(set(names)) == len(names) == 2 * 9 + 3


def llama_folder(folder: Path, **changes: object) -> Path:
    """Write a folder as transformers does, without it: random weights of two layers."""
    folder.mkdir()
    draw = np.random.default_rng(1)
    shapes = {
        "embed_tokens": (512, 64), "lm_head": (512, 64), "q_proj": (64, 64), "k_proj": (32, 64), "v_proj": (32, 64),
        "o_proj": (64, 64), "gate_proj": (128, 64), "up_proj": (128, 64), "down_proj": (64, 128),
    }  # fmt: skip
    names = parameter_names(2)
    tensors = {
        name: draw.normal(0, 0.02, next((shape for part, shape in shapes.items() if part in name), (64,))).astype(
            np.float32
        )
        for name in names
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "vocab_size": 512,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "qwen2"}, "model_type is 'qwen2', expected 'llama'"),
        ({"hidden_size": 128}, "hidden_size is 64, the folder's hidden_size 128"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling .* is not supported"),
    ],
)
def test_a_folder_of_another_model_is_named(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    model = ModelConfig(hidden_size=64, intermediate_size=128, num_layers=2, num_heads=4, num_kv_heads=2)
    with pytest.raises(PipelineError, match=said):
        import_folder(llama_folder(tmp_path / "llama", **changes), model, 512, tmp_path / "weights.safetensors")


def test_damaged_missing_and_too_large_folders_are_named(tmp_path: Path) -> None:
    model = ModelConfig(hidden_size=64, intermediate_size=128, num_layers=2, num_heads=4, num_kv_heads=2)
    folder, target = llama_folder(tmp_path / "llama"), tmp_path / "weights.safetensors"
    with pytest.raises(PipelineError, match="its vocabulary has 512 rows, the model's 256"):
        import_folder(folder, model, 256, target)
    grown = load_file(import_folder(folder, model, 520, target))
    assert grown["lm_head.weight"].shape == (520, 64)
    assert np.allclose(grown["lm_head.weight"][512:], grown["lm_head.weight"][:512].mean(axis=0))
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:200])
    with pytest.raises(PipelineError, match=r"model\.safetensors: damaged or half written"):
        import_folder(folder, model, 512, target)
    (folder / "model.safetensors").unlink()
    with pytest.raises(PipelineError, match=r"no \*\.safetensors there"):
        import_folder(folder, model, 512, target)


def test_a_finished_training_has_perplexities_and_a_text_that_it_continued(trained: Artifact) -> None:
    lines = [json.loads(line) for line in (trained.folder / "evaluations.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [20, 40]
    assert lines[1]["loss"] < lines[0]["loss"]
    assert lines[1]["perplexity"] == pytest.approx(np.exp(lines[1]["loss"]))
    assert trained.manifest.stats["held_out_perplexity"] == pytest.approx(lines[1]["perplexity"], abs=1e-3)
    samples = (trained.folder / "sample.txt").read_text(encoding="utf-8").strip().split("\n\n")
    assert all("⟦the model goes on⟧" in sample for sample in samples)
    assert (trained.folder / "metrics.parquet").is_file()


def test_an_export_does_not_write_over_anything_and_needs_a_checkpoint(trained: Artifact, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    with pytest.raises(PipelineError, match="is there already and not empty"):
        export_checkpoint(trained.folder, tmp_path / "there")
    with pytest.raises(PipelineError, match="no checkpoint there"):
        export_checkpoint(tmp_path, tmp_path / "new")


def test_a_training_begins_with_the_weights_of_another_run(trained: Artifact) -> None:
    workspace = trained.folder.parents[2]
    dataset = Workspace(workspace).manifest("pack", trained.manifest.inputs[0])
    config = sample_config(
        workspace,
        held_out_share=0.1,
        model={"preset": "demo", "init": "checkpoint", "init_from": str(trained.folder)},
        training=TRAINING | {"learning_rate": 1e-4},
        smoke={"steps": 20, "min_loss_drop": 0.0},
    )
    made = build_artifact(smoke.STAGE, config, [dataset], LocalExecutor())
    assert made.stats["loss_first"] < trained.manifest.stats["loss_last"] + 0.2
    other = made.config["model"]
    assert other["initial_weights"] is not None
