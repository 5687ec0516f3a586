"""What a training needs of each device, term by term, and how long it takes.

Formulas: parameters of a Llama counted by its matrices; states as in ZeRO (arXiv 1910.02054); activations after "Reducing
Activation Recomputation" (arXiv 2205.05198, table 2), with the gated layer and flash attention counted by themselves;
FLOPs a token after PaLM (arXiv 2204.02311, appendix B). Sizes in bytes, 1 GB = 10^9.
"""

from dataclasses import dataclass

from configs.training import ModelConfig, TrainingConfig

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
ADAM_BYTES = 8
"""First and second moment of a parameter, in float32."""
GROUP_BUFFER = 200 * 10**6
"""Communication buffers of a group of devices (MindSpore FAQ: 200 to 300 MB)."""
LOGIT_COPIES = 3
"""Logits, their softmax and their gradient, in float32."""
USABLE_SHARE = 58 / 64
"""What max_device_memory leaves the framework, so that communication and the driver have theirs."""
FRAGMENTATION = 0.05


@dataclass(frozen=True)
class Parameters:
    """How many parameters a network has, by where they are."""

    layer: int
    layers: int
    embedding: int
    head: int
    norm: int

    @property
    def total(self) -> int:
        return self.layer * self.layers + self.embedding + self.head + self.norm


@dataclass(frozen=True)
class Memory:
    """Bytes of the most loaded device. `scheme`: how the bytes of a parameter come together."""

    scheme: str
    weights: float
    gathered: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    usable: float | None

    @property
    def states(self) -> float:
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """All terms, with what fragmentation costs."""
        held = self.states + self.gathered + self.activations + self.logits
        return held * (1 + FRAGMENTATION)

    @property
    def fits(self) -> bool | None:
        return None if self.usable is None else self.total <= self.usable

    def terms(self) -> list[tuple[str, float]]:
        return [
            ("weights", self.weights),
            ("weights gathered for use", self.gathered),
            ("gradients", self.gradients),
            ("optimizer (Adam m, v)", self.optimizer),
            ("activations", self.activations),
            ("logits", self.logits),
            ("in all, with 5% lost to fragmentation", self.total),
            ("communication buffers, beside it", self.buffers),
        ]

    @property
    def largest_term(self) -> str:
        return max(self.terms()[:6], key=lambda term: term[1])[0]


def count_parameters(model: ModelConfig, vocab_size: int) -> Parameters:
    """Return the parameters of a Llama or Qwen3."""
    hidden, head = model.hidden_size, model.head_length
    attention = 2 * hidden * model.num_heads * head + 2 * hidden * model.kv_heads * head
    norms = 2 * hidden + (2 * head if model.family == "qwen3" else 0)
    rows = vocab_size * hidden
    return Parameters(
        layer=attention + 3 * hidden * model.intermediate_size + norms,
        layers=model.num_layers,
        embedding=rows,
        head=0 if model.tie_word_embeddings else rows,
        norm=hidden,
    )


def device_memory(model: ModelConfig, training: TrainingConfig, seq_length: int, vocab_size: int) -> Memory:
    """Return what the most loaded device needs."""
    parallel, counted = training.parallel, count_parameters(model, vocab_size)
    stages = parallel.pipeline
    share = counted.layer * -(-counted.layers // stages) + counted.embedding + (counted.head if stages == 1 else 0)
    own = share / parallel.tensor
    wide = BYTES[training.weight_precision]
    copies = training.data_parallel if parallel.optimizer_sharding else 1
    # Sharded weights are gathered in compute precision: all of them, or, if gathering is done again in the backward pass,
    # those of one layer.
    gathered = 0.0
    if copies > 1:
        again = training.recompute != "none"
        gathered = (counted.layer / parallel.tensor if again else own) * BYTES[training.precision]
    return Memory(
        scheme=_scheme(training),
        weights=own * wide / copies,
        gathered=gathered,
        gradients=own * wide,
        optimizer=own * ADAM_BYTES / copies,
        activations=_activations(model, training, seq_length),
        logits=_logits(training, seq_length, vocab_size),
        buffers=GROUP_BUFFER * _groups(training),
        usable=training.memory * USABLE_SHARE if training.memory else None,
    )


def states_a_parameter() -> list[tuple[int, str]]:
    """Return the three schemes: bytes a parameter, and what they are."""
    return [
        (12, "fp16 weights 2 + fp16 gradients 2 + Adam m and v in fp32 8, no exact copy (weight_precision: fp16)"),
        (16, "fp32 weights 4 + fp32 gradients 4 + m and v 8 (weight_precision: fp32, the default); as many as fp16 weights "
             "2 + gradients 2 + fp32 copy, m and v 12"),
        (18, "Megatron: bf16 weights 2 + fp32 gradients 4 + fp32 copy, m and v 12"),
    ]  # fmt: skip


def flops_a_token(model: ModelConfig, seq_length: int, vocab_size: int) -> float:
    """Return the FLOPs of forward and backward pass a token: 6 N + 12 L H Q T, all parameters counted."""
    attention = 12 * model.num_layers * model.num_heads * model.head_length * seq_length
    return 6 * count_parameters(model, vocab_size).total + attention


def _scheme(training: TrainingConfig) -> str:
    kind = training.weight_precision
    wide = BYTES[kind]
    return (
        f"{2 * wide + ADAM_BYTES} bytes a parameter: {kind} weights {wide} + {kind} gradients {wide} + Adam m and v 8"
    )


def _activations(model: ModelConfig, training: TrainingConfig, seq_length: int) -> float:
    """Return the bytes that the backward pass waits for: of all layers of a stage, times the micro batches under way."""
    parallel = training.parallel
    tokens = training.batch_size * seq_length / parallel.context
    layer = _layer_activations(model, tokens, parallel.tensor, parallel.sequence)
    kept = {
        "none": layer,
        "selective": min(layer, 34 * tokens * model.hidden_size * _split(parallel.tensor, parallel.sequence)),
        "full": 2 * tokens * model.hidden_size,
    }[training.recompute]
    layers = -(-model.num_layers // parallel.pipeline)
    under_way = min(parallel.pipeline, training.gradient_accumulation)
    working = layer if training.recompute != "none" else 0.0
    in_16_bits = kept * layers * under_way + working
    return in_16_bits * BYTES[training.precision] / 2


def _layer_activations(model: ModelConfig, tokens: float, tensor: int, sequence: bool) -> float:
    """Return the bytes of one layer in 16 bits, with flash attention: 16 sbh + 8 sbf + 8 sba."""
    gated = 8 * tokens * model.intermediate_size / tensor
    return (16 * tokens * model.hidden_size + 8 * tokens * model.num_heads) * _split(tensor, sequence) + gated


def _split(tensor: int, sequence: bool) -> float:
    """Return the share of a layer's activations that a device keeps: 10 of 34 parts are not split without sequence
    parallelism."""
    return 1 / tensor if sequence else 10 / 34 + 24 / 34 / tensor


def _logits(training: TrainingConfig, seq_length: int, vocab_size: int) -> float:
    tokens = training.batch_size * seq_length / training.parallel.context
    return 4.0 * tokens * vocab_size * LOGIT_COPIES / training.parallel.tensor


def _groups(training: TrainingConfig) -> int:
    parallel = training.parallel
    sizes = (training.workers, training.data_parallel, parallel.tensor, parallel.pipeline, parallel.context)
    return sum(size > 1 for size in sizes)
