"""What a training can be told: the network, how it learns, on how many devices, and when it must stop.

The presets of networks are files beside this one, `models/NAME.yaml`; a key that is given beside `preset` wins.
"""

from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, field_validator, model_validator

from configs.section import Section, Share, refuse_rising
from configs.sizes import parse_size

PRESETS = Path(__file__).with_name("models")


@cache
def preset_names() -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in PRESETS.glob("*.yaml")))


@cache
def read_preset(name: str) -> dict[str, Any]:
    """Return the keys of a preset; those of no preset for a name that is none."""
    file = PRESETS / f"{name}.yaml"
    return dict(yaml.safe_load(file.read_text(encoding="utf-8"))) if name in preset_names() else {}


class ModelConfig(Section):
    """The network. The sequence length comes from `pack`."""

    preset: str | None = None
    """A file of `configs/models`, such as llama2-7b; the keys below then have its values where they are left out."""
    family: Literal["llama", "qwen3"] = "llama"
    """`llama`: mindformers' legacy Llama, on CPU and Ascend. `qwen3`: its Mcore family, on Ascend alone."""
    vocab_size: int | None = Field(default=None, ge=1)
    """Rows of the embedding; the tokenizer's size where it is left out. More leave room, fewer are refused."""
    hidden_size: int = Field(default=128, ge=8)
    intermediate_size: int = Field(default=352, ge=8)
    num_layers: int = Field(default=2, ge=1)
    num_heads: int = Field(default=4, ge=1)
    num_kv_heads: int | None = Field(default=None, ge=1)
    """Heads of keys and values (grouped-query attention); as many as `num_heads` where it is left out."""
    head_dim: int | None = Field(default=None, ge=2)
    """Length of a head; hidden_size / num_heads where it is left out. Only qwen3 takes another."""
    tie_word_embeddings: bool = False
    """Use the embedding as output layer too. Only qwen3."""
    rope_theta: float = Field(default=10000.0, gt=0)
    rms_norm_eps: float = Field(default=1e-5, gt=0)
    initializer_range: float = Field(default=0.02, gt=0)
    init: Literal["scratch", "hf_folder", "checkpoint"] = "scratch"
    """Where the first weights come from: drawn by the seed, a Hugging Face folder, or a checkpoint of an earlier run
    (its weights alone; optimizer and schedule begin anew)."""
    init_from: str | None = None
    """The Hugging Face folder, or a checkpoint's folder, or one that holds `checkpoints/`: then the last whole one."""

    @model_validator(mode="before")
    @classmethod
    def fill_in_the_preset(cls, given: Any) -> Any:
        name = given.get("preset") if isinstance(given, dict) else None
        return read_preset(name) | given if isinstance(name, str) else given

    @field_validator("preset")
    @classmethod
    def check_preset(cls, name: str | None) -> str | None:
        if name is not None and name not in preset_names():
            raise ValueError(f"there is no preset {name!r}; the presets are {', '.join(preset_names())}")
        return name

    @model_validator(mode="after")
    def check_heads(self) -> Self:
        if self.head_dim is None and (self.hidden_size % self.num_heads or (self.hidden_size // self.num_heads) % 2):
            raise ValueError(
                f"hidden_size {self.hidden_size} over num_heads {self.num_heads} must be a whole, even number "
                "(the length of a head, which rotary embedding halves); choose num_heads accordingly"
            )
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads {self.num_heads} must be a multiple of num_kv_heads {self.num_kv_heads}")
        return self

    @model_validator(mode="after")
    def check_family(self) -> Self:
        own = self.head_dim not in (None, self.hidden_size // self.num_heads) or self.tie_word_embeddings
        if self.family == "llama" and own:
            raise ValueError(
                "family llama takes heads of hidden_size / num_heads and an output layer of its own; "
                "leave head_dim and tie_word_embeddings out, or write family: qwen3"
            )
        return self

    @model_validator(mode="after")
    def check_init(self) -> Self:
        if (self.init == "scratch") != (self.init_from is None):
            raise ValueError(
                f"init {self.init} and init_from {self.init_from} do not go together; write init: hf_folder or checkpoint "
                "with init_from, the folder, or neither of both"
            )
        return self

    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    @property
    def head_length(self) -> int:
        return self.head_dim or self.hidden_size // self.num_heads


class ParallelConfig(Section):
    """How the network and the batch are spread over devices: data x tensor x pipeline x context = training.workers."""

    data: int | None = Field(default=None, ge=1)
    """Copies that see different sequences; what the others leave of training.workers where it is left out."""
    tensor: int = Field(default=1, ge=1)
    """Devices that share every matrix; best kept within a server, as they talk in every layer."""
    pipeline: int = Field(default=1, ge=1)
    """Stages that share the layers."""
    context: int = Field(default=1, ge=1)
    """Devices that share a sequence."""
    optimizer_sharding: bool = False
    """Spread weights and optimizer state over the data-parallel copies (ZeRO; mindformers' enable_parallel_optimizer)."""
    sequence: bool = False
    """Spread norms over the tensor-parallel devices, along the sequence: less memory for the same traffic."""
    layer_offset: list[int] | None = None
    """By how many layers each pipeline stage departs from an equal share, such as [-1, 0, 0, 1]."""

    @property
    def of_a_copy(self) -> int:
        """Devices that hold one copy of the network."""
        return self.tensor * self.pipeline * self.context


class TrainingConfig(Section):
    """What smoke and pretrain have in common: devices, precision, batch, optimizer."""

    device: Literal["CPU", "Ascend"] = "CPU"
    workers: int = Field(default=1, ge=1)
    """Training processes, one a device, on all hosts together."""
    hosts: list[str] = Field(default_factory=list)
    """Names or addresses of the servers, the first one being the master; this machine alone where it is left out. The
    workers are divided evenly over them."""
    device_memory: str | None = None
    """Memory of a device, such as 64GB. plan and the smoke gate hold the training to it."""
    parallel: ParallelConfig = ParallelConfig()
    dataset: Literal["mindrecord", "megatron"] = "mindrecord"
    """Which of `pack.outputs` to train on. Megatron's loader cuts and shuffles by itself."""
    precision: Literal["fp32", "fp16", "bf16"] = "fp32"
    """Compute precision. CPU has no bf16 kernels."""
    weight_precision: Literal["fp32", "fp16"] = "fp32"
    """Of stored weights and their gradients. fp16 halves both and keeps no exact copy: 12 bytes a parameter, not 16."""
    batch_size: int = Field(default=8, ge=1)
    """Sequences that a copy takes at once (the micro batch)."""
    gradient_accumulation: int = Field(default=1, ge=1)
    """Micro batches of a step; in a pipeline those that are under way."""
    global_batch_tokens: int | None = Field(default=None, ge=1)
    """Tokens of a step over all copies; gradient_accumulation then follows from it."""
    learning_rate: float = Field(default=3e-4, gt=0)
    """Peak. 1e-4 to 3e-4 from scratch at billions of parameters, 1e-5 to 5e-5 when trained further; small models take ten
    times as much."""
    schedule: Literal["cosine", "wsd"] = "cosine"
    """`wsd`: warm-up, stable, decay; what is stable can be trained further before it decays."""
    final_learning_rate: float = Field(default=0.0, ge=0)
    """Where the schedule ends."""
    warmup_share: Share = 0.03
    """Share of the steps in which the learning rate rises from 0; 2 to 5% are usual."""
    decay_share: Share = 0.1
    """Of wsd: share of the steps, the last ones, in which the learning rate falls."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """0.95 follows large-batch gradients faster than Adam's 0.999."""
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    max_gradient_norm: float = Field(default=1.0, gt=0)
    loss_scaling: Literal["dynamic", "static"] = "dynamic"
    """With fp16 alone. A static scale does not give way when gradients overflow."""
    loss_scale: int = Field(default=65536, ge=1)
    """Where the dynamic loss scale starts, or the static one; used with fp16 alone."""
    recompute: Literal["none", "selective", "full"] = "none"
    """Compute activations again in the backward pass: less memory; full costs up to a third more work, selective (of
    attention and the gated layer) a few percent."""
    timeout_minutes: float = Field(default=30, gt=0)
    """Stop when no training step has ended for so long."""
    max_restarts: int = Field(default=2, ge=0)
    """How often a training that was interrupted from outside (a lost worker, a silent one) goes on by itself from its last
    checkpoint."""
    tokens_per_second: float | None = Field(default=None, gt=0)
    """What a device is expected to do, for plan's time and the smoke gate; from an earlier run or a published one."""
    tensorboard: bool = False
    """Also write the curves as TensorBoard files (needs the package tensorboard)."""

    @model_validator(mode="after")
    def check_learning_rates(self) -> Self:
        if self.device == "CPU" and self.precision == "bf16":
            raise ValueError("precision bf16 has no kernels on CPU; write fp32 or fp16, or device: Ascend")
        refuse_rising(self.learning_rate, self.final_learning_rate)
        return self

    @model_validator(mode="after")
    def check_layout(self) -> Self:
        parallel, copy = self.parallel, self.parallel.of_a_copy
        if self.workers % copy:
            raise ValueError(
                f"workers {self.workers} is no multiple of tensor x pipeline x context = {copy}; P1: data x tensor x "
                "pipeline x context must be the number of devices"
            )
        if parallel.data is not None and parallel.data * copy != self.workers:
            raise ValueError(
                f"parallel: data {parallel.data} x tensor {parallel.tensor} x pipeline {parallel.pipeline} x context "
                f"{parallel.context} = {parallel.data * copy}, but workers is {self.workers} (P1); write data: "
                f"{self.workers // copy}, or leave it out"
            )
        if self.device == "CPU" and (copy > 1 or parallel.optimizer_sharding or self.hosts):
            raise ValueError(
                "CPU trains in data parallel on this machine alone; leave tensor, pipeline, context, optimizer_sharding and "
                "hosts out, or write device: Ascend"
            )
        if self.hosts and self.workers % len(self.hosts):
            raise ValueError(f"workers {self.workers} cannot be divided evenly over {len(self.hosts)} hosts")
        return self

    @field_validator("device_memory")
    @classmethod
    def check_memory(cls, given: str | None) -> str | None:
        if given is not None:
            parse_size(given)
        return given

    @property
    def global_batch(self) -> int:
        """Sequences of a step, over all devices."""
        return self.data_parallel * self.batch_size * self.gradient_accumulation

    @property
    def data_parallel(self) -> int:
        return self.workers // self.parallel.of_a_copy

    @property
    def memory(self) -> int | None:
        """Bytes of a device."""
        return parse_size(self.device_memory) if self.device_memory else None

    @property
    def semi_auto(self) -> bool:
        """Whether MindSpore spreads the network by strategies; else each device holds all of it."""
        parallel = self.parallel
        accumulates = self.gradient_accumulation > 1 and self.device == "Ascend"
        return parallel.of_a_copy > 1 or parallel.optimizer_sharding or accumulates


class SmokeConfig(Section):
    """A short training that must succeed before the long one may start. Each threshold is a gate."""

    steps: int = Field(default=100, ge=10)
    min_loss_drop: float = 0.1
    """By how much (nats a token) the mean loss of the last tenth of the steps must lie below that of the first tenth, and
    below that of the first step, which is as good as knowing nothing. Below 0, by how much it may rise: what goes on from
    trained weights has little to fall."""
    min_last_loss: float = Field(default=0.5, ge=0)
    """A mean loss (nats a token) of the last tenth below this shows data that repeats itself: no text is so predictable
    after so few steps."""
    max_overflow_share: Share = 0.25
    """Largest share of steps, after the first `overflow_steps_ignored`, that fp16 overflow may skip."""
    overflow_steps_ignored: int = Field(default=20, ge=0)
    """A dynamic loss scale needs some steps to find its level: 16 from 65536 to 1."""
    max_gradient_norm: float = Field(default=100.0, gt=0)
    """Of the median step, before clipping. A sound training from scratch begins under 20 and falls."""
    max_memory_share: Share = 0.95
    """Of training.device_memory, or of this machine's memory on CPU."""
    max_step_time_ratio: float = Field(default=3.0, gt=1)
    """The 90th percentile of step times over the median."""
    max_rank_slowness: float = Field(default=2.0, gt=1)
    """Time of a rank's own forward pass over the median of all ranks."""
    min_throughput_share: Share = 0.5
    """Of training.tokens_per_second, where that is given."""


class PretrainConfig(Section):
    """The long training."""

    steps: int | None = Field(default=None, ge=1)
    """Optimizer steps. Give this or `epochs`."""
    epochs: float | None = Field(default=None, gt=0)
    """Passes over the token dataset; one where neither this nor `steps` is given."""
    checkpoint_every: int = Field(default=500, ge=1)
    """Steps between two checkpoints."""
    keep_checkpoints: int = Field(default=3, ge=2)
    """How many to keep. At least two, so that one is whole while the next is written."""
    evaluate_every: int | None = Field(default=None, ge=1)
    """Steps between two evaluations on the held-out sequences (`pack.held_out_share`); at the end alone where it is left
    out."""
    evaluation_sequences: int = Field(default=256, ge=1)
    """Held-out sequences of an evaluation, at most."""
    max_loss_spike: float = Field(default=3.0, gt=0)
    """Stop when the loss (nats a token) lies so much above the mean of the last 50 steps."""
    sample_tokens: int = Field(default=48, ge=0)
    """Length of the text that the finished model continues, as a sample; 0 for none."""

    @model_validator(mode="after")
    def check_length(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise ValueError(
                f"steps {self.steps} and epochs {self.epochs} both say how long to train; give one of them"
            )
        return self
