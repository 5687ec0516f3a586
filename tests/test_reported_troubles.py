"""What people who pretrain on MindSpore have reported, each as a test: the input that led them astray, and what is said.

T18 to T20, an exact resume and damaged or empty folders to resume from, are in tasks/train/test_resume.py and
tasks/train/test_two_workers.py, since they train.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from configs.errors import ConfigError
from configs.load import load_config
from configs.schema import NormalizeConfig
from configs.training import ModelConfig, TrainingConfig
from tasks import chunk, dedup, filter, normalize, pack
from tasks.check import foreign_yaml
from tasks.normalize.text import normalize_text
from tasks.pack.checks import EosFindings
from tasks.pack.dataset import Dataset
from tasks.tokenizer import TokenIds
from tasks.train.memory import device_memory
from tasks.train.rank_table import check_table, make_table
from tasks.train.rules import check_yaml
from tasks.train.versions import check_versions
from tests.conftest import MakeConfig, RunCommand, build_chain


def rules_broken(content: dict[str, object], devices: int | None = None) -> set[str]:
    return {finding.rule for finding in check_yaml(content, devices)}


def layout(devices_of: dict[str, int], **model: object) -> dict[str, object]:
    return {
        "use_parallel": True,
        "parallel": {"parallel_mode": 1},
        "parallel_config": devices_of,
        "model": {"model_config": {"type": "LlamaConfig", **model}},
    }


def test_t01_the_articles_pair_of_versions_is_refused_and_the_right_one_named() -> None:
    found = check_versions("2.3.0", "0.6.0", "3.10")
    assert found.status == "fail"
    assert "mindformers 1.2.0 with CANN 8.0.RC2" in found.text


def test_t02_an_exact_row_is_right_and_the_release_before_a_warning() -> None:
    assert check_versions("2.7.1", "1.7.0", "3.11", "8.3.RC1").status == "ok"
    assert check_versions("2.7.0", "1.7.0", "3.11").status == "warn"


def test_t03_a_number_that_yaml_takes_for_text_is_named_with_its_mend(tmp_path: Path) -> None:
    content = yaml.safe_load("optimizer: {type: AdamW, eps: 1e-8}")
    (finding,) = [finding for finding in check_yaml(content) if finding.rule == "L1"]
    assert (finding.severity, finding.key, finding.mend) == ("error", "optimizer.eps", "write 1.e-8")
    ours = tmp_path / "run.yaml"
    ours.write_text("inputs: [{path: raw, source: raw}]\ntraining: {eps: 1e-8}\n")
    with pytest.raises(
        ConfigError, match=r"line 2: training\.eps: found the text '1e-8', expected a number.*write 1\.0e-8"
    ):
        load_config(ours)


def test_t04_a_section_that_mindformers_does_not_know_is_refused_with_the_real_key(
    tmp_path: Path, mindpretrain: RunCommand
) -> None:
    file = tmp_path / "llama7b_finetune.yaml"
    file.write_text("train: {ckpt_dir: ./output/ckpt}\noptimizer: {type: AdamW}\n")
    assert foreign_yaml(file) is not None
    done = mindpretrain("check", file)
    assert done.returncode == 1
    assert "error keys: train.ckpt_dir: mindformers knows no such key" in done.stderr
    assert "write output_dir, and CheckpointMonitor among the callbacks" in done.stderr


def test_t05_a_layout_for_another_number_of_devices_is_p1(tmp_path: Path) -> None:
    devices = {"data_parallel": 8, "model_parallel": 4, "pipeline_stage": 1}
    assert "P1" in rules_broken(layout(devices), devices=16)
    assert "P1" not in rules_broken(layout(devices), devices=32)
    ours = tmp_path / "run.yaml"
    ours.write_text(
        "inputs: [{path: raw, source: raw}]\ntraining: {device: Ascend, workers: 16, parallel: {data: 8, tensor: 4}}\n"
    )
    with pytest.raises(ConfigError, match=r"data 8 x tensor 4 x pipeline 1 x context 1 = 32, but workers is 16 \(P1\)"):
        load_config(ours)


def test_t06_heads_layers_and_micro_batches_that_cannot_be_divided_are_p3_p6_p8() -> None:
    assert "P3" in rules_broken(layout({"model_parallel": 3}, num_heads=32, hidden_size=4096))
    assert "P6" in rules_broken(layout({"pipeline_stage": 5, "micro_batch_num": 20}, num_layers=32))
    assert "P8" in rules_broken(layout({"pipeline_stage": 4, "micro_batch_num": 2}, num_layers=32))


def test_t07_accumulation_in_a_pipeline_is_p10() -> None:
    content = layout({"pipeline_stage": 2, "micro_batch_num": 8}) | {
        "runner_config": {"gradient_accumulation_steps": 8}
    }
    assert "P10" in rules_broken(content)


def test_t08_a_strategy_for_another_number_of_copies_is_b2() -> None:
    content = layout({"data_parallel": 8})
    content["parallel"] = {"parallel_mode": 1, "full_batch": False, "dataset_strategy": [[4, 1]]}
    assert "B2" in rules_broken(content)


def test_t09_padding_that_is_also_the_end_of_a_document_is_d4() -> None:
    assert "D4" in rules_broken(layout({}, pad_token_id=2, eos_token_id=2))


def test_t10_a_token_id_that_the_vocabulary_has_not_is_d3() -> None:
    """In a dataset from elsewhere, in a model's own ids, and (in test_gates) in the first batch of a training."""
    ids = TokenIds(32000, 2, -1, -1)
    found = EosFindings(tokens=1000, eos=10, documents=9, without_newline=0.0, largest=32000).problems(ids, 0.02)
    assert found == ["token id 32000 is not in the vocabulary of 32000: another tokenizer's data?"]
    assert "D3" in rules_broken(layout({}, eos_token_id=32000, vocab_size=32000))


def test_t11_7b_over_32_copies_fits_64_gigabytes_only_with_optimizer_sharding() -> None:
    model = ModelConfig.model_validate({"preset": "llama2-7b"})
    for sharded in (False, True):
        training = TrainingConfig.model_validate(
            {
                "device": "Ascend",
                "workers": 32,
                "device_memory": "64GB",
                "precision": "bf16",
                "batch_size": 1,
                "recompute": "full",
                "parallel": {"optimizer_sharding": sharded},
            }
        )
        assert device_memory(model, training, 4096, 32000).fits is sharded


def test_t12_the_usual_mistakes_in_a_rank_table_are_named_by_their_rules() -> None:
    """Comments (R1) are in test_rank_table, as they make the file no JSON."""
    table = make_table([("10.0.0.1", ["192.168.1.8"]), ("10.0.0.2", ["192.168.2.8"])])
    table["server_list"][0]["device"][0]["rank_id"] = 0
    table["server_list"][1]["device"][0]["device_ip"] = "192.168.1.8"
    table |= {"status": "initializing", "server_count": "1"}
    assert {problem.partition(":")[0] for problem in check_table(table)} == {"R2", "R4", "R6", "R8"}


def test_t13_names_stay_and_words_are_converted() -> None:
    assert normalize_text("乾安县與乾隆年間", NormalizeConfig()) == "乾安县与乾隆年间"
    assert normalize_text("康乾盛世的歷史", NormalizeConfig()) == "康乾盛世的历史"
    of_taiwan = NormalizeConfig(conversion="tw2s")
    assert [normalize_text(text, of_taiwan) for text in ("看著 著急", "著作")] == ["看着 着急", "著作"]


def test_t14_letters_and_digits_become_half_width_and_punctuation_stays() -> None:
    assert normalize_text("ＡＢＣ１２３，（测试）完", NormalizeConfig()) == "ABC123，（测试）完"


def test_t15_a_line_separator_within_a_record_does_not_split_it(raw: Path, make_config: MakeConfig) -> None:
    (raw / "a.jsonl").write_text('{"text":"甲\u2028乙"}\n{"text":"丙"}\n', encoding="utf-8")
    (built,) = build_chain(make_config(), normalize.STAGE)
    assert built.manifest.stats["documents_kept"] == 2


def test_t16_short_texts_are_compared_exactly(raw: Path, make_config: MakeConfig) -> None:
    for name, texts, kept in (("pets", ["猫", "狗", "猫"], 2), ("likes", ["我喜欢健身", "我喜欢普洱茶"], 2)):
        for old in raw.iterdir():
            old.unlink()
        (raw / f"{name}.jsonl").write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))
        built = build_chain(make_config(dedup={"min_characters_left": 0}), normalize.STAGE, dedup.STAGE)[-1]
        assert built.manifest.stats["documents_kept"] == kept


def test_t17_a_document_of_many_lines_ends_once(raw: Path, make_config: MakeConfig) -> None:
    """Two articles of short lines: one eos after each, none after a line."""
    lines = [f"第{number}句讲的是训练中的第{number}个问题，以及怎样解决它。" for number in range(60)]
    for name, part in (("a", lines[:30]), ("b", lines[30:])):
        (raw / f"{name}.txt").write_text("\n".join(part) + "\n", encoding="utf-8")
    config = make_config(
        pack={"seq_length": 64, "tokenizer": {"vocab_size": 600}, "outputs": ["megatron"]},
        training={"dataset": "megatron"},
    )
    packed = build_chain(config, normalize.STAGE, dedup.STAGE, filter.STAGE, chunk.STAGE, pack.STAGE)[-1]
    index = packed.folder / "megatron" / "train-00000.bin"
    header = Dataset(packed.folder).header
    tokens = np.fromfile(index, header["dtype"])
    assert int((tokens == header["eos"]).sum()) == 2
