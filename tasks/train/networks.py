"""The `model` section of the mindformers YAML, for each family.

`llama` is the legacy class, which runs on CPU once its fused kernels are off; `qwen3` is of the Mcore family, whose keys
are those of Hugging Face and which runs on Ascend alone.
"""

from typing import Any

from tasks.train.job import TrainingJob
from tasks.train.settings import Setting, setting

MINDSPORE_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def trainer_name(job: TrainingJob) -> str:
    return {"llama": "llama", "qwen3": "qwen3"}[job.model.family]


def network(job: TrainingJob, columns: list[str]) -> dict[str, Any]:
    """Return the section. `columns`: what the network is given."""
    return _llama(job, columns) if job.model.family == "llama" else _qwen3(job)


def _llama(job: TrainingJob, columns: list[str]) -> dict[str, Any]:
    on_cpu = job.training.device == "CPU"
    offset = job.training.parallel.layer_offset
    return {
        "model_config": {
            "type": "LlamaConfig",
            "batch_size": setting(job.training, "batch_size", "training"),
            "seq_length": Setting(job.seq_length, "config pack.seq_length"),
            "vocab_size": _vocab_size(job),
            "hidden_size": _model(job, "hidden_size"),
            "intermediate_size": _model(job, "intermediate_size"),
            "num_layers": _model(job, "num_layers"),
            "num_heads": _model(job, "num_heads"),
            "n_kv_heads": _model(job, "num_kv_heads"),
            "theta": _model(job, "rope_theta"),
            "rms_norm_eps": _model(job, "rms_norm_eps"),
            "init_method_std": _model(job, "initializer_range"),
            **({"offset": offset} if offset else {}),
            "eos_token_id": Setting(job.eos_id, "tokenizer eos"),
            "pad_token_id": Setting(job.pad_id, "tokenizer pad"),
            "compute_dtype": _type(job, "precision"),
            "layernorm_compute_type": "float32",
            "softmax_compute_type": "float32",
            "rotary_dtype": "float32",
            "param_init_type": _type(job, "weight_precision"),
            "input_sliced_sig": "labels" in columns,
            "use_eod_attn_mask_compression": "actual_seq_len" in columns,
            "use_flash_attention": not on_cpu,
            "fused_rms_norm": not on_cpu,
            "use_rope_slice": on_cpu,
        },
        "arch": {"type": "LlamaForCausalLM"},
    }


def _qwen3(job: TrainingJob) -> dict[str, Any]:
    model, offset = job.model, job.training.parallel.layer_offset
    return {
        "model_config": {
            "model_type": "qwen3",
            "architectures": ["Qwen3ForCausalLM"],
            "seq_length": Setting(job.seq_length, "config pack.seq_length"),
            "max_position_embeddings": job.seq_length,
            "vocab_size": _vocab_size(job),
            "hidden_size": _model(job, "hidden_size"),
            "intermediate_size": _model(job, "intermediate_size"),
            "num_hidden_layers": _model(job, "num_layers"),
            "num_attention_heads": _model(job, "num_heads"),
            "num_key_value_heads": Setting(model.kv_heads, setting(model, "num_kv_heads", "model").origin),
            "head_dim": Setting(model.head_length, setting(model, "head_dim", "model").origin),
            "hidden_act": "swiglu",
            "rope_theta": _model(job, "rope_theta"),
            "rms_norm_eps": _model(job, "rms_norm_eps"),
            "initializer_range": _model(job, "initializer_range"),
            "tie_word_embeddings": _model(job, "tie_word_embeddings"),
            "untie_embeddings_and_output_weights": not model.tie_word_embeddings,
            "attention_bias": False,
            "add_bias_linear": False,
            "attention_dropout": 0.0,
            "hidden_dropout": 0.0,
            "position_embedding_type": "rope",
            "qk_layernorm": True,
            "use_contiguous_weight_layout_attention": False,
            "use_flash_attention": True,
            "input_sliced_sig": True,
            **({"offset": offset} if offset else {}),
            "eos_token_id": Setting(job.eos_id, "tokenizer eos"),
            "pad_token_id": Setting(job.pad_id, "tokenizer pad"),
            "params_dtype": _type(job, "weight_precision"),
            "compute_dtype": _type(job, "precision"),
            "layernorm_compute_dtype": "float32",
            "softmax_compute_dtype": "float32",
            "rotary_dtype": "float32",
            "fp32_residual_connection": True,
        }
    }


def _model(job: TrainingJob, key: str) -> Setting:
    return setting(job.model, key, "model")


def _vocab_size(job: TrainingJob) -> Setting:
    given = _model(job, "vocab_size")
    return Setting(job.vocab_size, "tokenizer vocab_size") if given.value is None else given


def _type(job: TrainingJob, key: str) -> Setting:
    given = setting(job.training, key, "training")
    return Setting(MINDSPORE_TYPES[given.value], given.origin)
