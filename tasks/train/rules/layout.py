"""How the network and the batch are spread (P and B)."""

from collections.abc import Iterator
from typing import Any

from tasks.train.rules.finding import Problem, Rule
from tasks.train.rules.view import DEVICES_A_SERVER, View, whole

CONFIG = "parallel_config"


def p1(v: View) -> Iterator[Problem]:
    product = v.dp * v.mp * v.cp * v.pp
    if v.semi_auto and product != v.devices:
        yield (
            f"{CONFIG}.data_parallel",
            f"data {v.dp} x model {v.mp} x context {v.cp} x pipeline {v.pp} = {product} on {v.devices} devices",
            f"make the product {v.devices}",
        )


def p2(v: View) -> Iterator[Problem]:
    wanted = [name for name in ("model_parallel", "pipeline_stage", "context_parallel") if v.parallel(name) > 1]
    if not v.semi_auto and wanted:
        yield (f"{CONFIG}.{wanted[0]}", f"{v.parallel(wanted[0])} without semi_auto", "write parallel.parallel_mode: 1")


def p3(v: View) -> Iterator[Problem]:
    hidden, heads = v.of_model("hidden_size"), v.heads
    if hidden and heads and hidden % heads and not v.model.get("head_dim"):
        yield (v.model_key("num_heads"), f"hidden_size {hidden} over {heads} heads is not whole", "choose a divisor")
    if heads and heads % v.mp:
        yield (f"{CONFIG}.model_parallel", f"{heads} heads cannot be divided by {v.mp}", f"choose a divisor of {heads}")


def p4(v: View) -> Iterator[Problem]:
    if v.kv_heads and v.kv_heads % v.mp and v.kv_heads != v.heads:
        yield (
            f"{CONFIG}.model_parallel",
            f"{v.kv_heads} key-value heads over {v.mp}",
            f"choose a divisor of {v.kv_heads}",
        )


def p5(v: View) -> Iterator[Problem]:
    for name in ("intermediate_size", "hidden_size"):
        size = v.of_model(name)
        if size and size % v.mp:
            yield (
                f"{CONFIG}.model_parallel",
                f"{name} {size} cannot be divided by {v.mp}",
                f"choose a divisor of {size}",
            )


def p6(v: View) -> Iterator[Problem]:
    layers, interleave = v.of_model("num_layers"), _interleave(v)
    if not layers or v.pp == 1:
        return
    if layers < v.pp:
        yield (f"{CONFIG}.pipeline_stage", f"{layers} layers on {v.pp} stages", "lower pipeline_stage")
        return
    offset, rest = v.model.get("offset", 0), layers % (v.pp * interleave)
    parts = offset if isinstance(offset, list) else [offset] if offset else []
    flat = [part for row in parts for part in (row if isinstance(row, list) else [row])]
    key = "model.model_config.offset"
    if rest and not flat:
        fit = even_offset(layers, v.pp, interleave)
        yield (key, f"{layers} layers on {v.pp} stages leave {rest} over", f"write offset, such as {fit}")
    elif flat and sum(flat) != rest:
        yield (
            key,
            f"offset adds up to {sum(flat)}, expected {rest}",
            "make it add up to what an equal share leaves over",
        )
    elif flat and len(flat) not in (v.pp, v.pp * interleave):
        yield (key, f"offset has {len(flat)} entries for {v.pp} stages", "give one for each stage")
    elif flat and min(flat) + layers // (v.pp * interleave) <= 0:
        yield (key, f"offset {flat} leaves a stage without layers", "let each stage have one at least")


def p7(v: View) -> Iterator[Problem]:
    layers = v.of_model("num_layers")
    if layers and _interleave(v) > 1 and _interleave(v) * v.pp > layers:
        yield (
            "model.model_config.pp_interleave_num",
            f"{_interleave(v)} x {v.pp} stages for {layers} layers",
            "lower it",
        )


def p8(v: View) -> Iterator[Problem]:
    micro = v.parallel("micro_batch_num")
    if v.pp > 1 and micro < v.pp:
        yield (f"{CONFIG}.micro_batch_num", f"{micro} micro batches in {v.pp} stages", f"write at least {v.pp}")


def p8_bubble(v: View) -> Iterator[Problem]:
    micro = v.parallel("micro_batch_num")
    if v.pp > 1 and v.pp <= micro < 4 * v.pp:
        share = (v.pp - 1) / (micro + v.pp - 1)
        yield (
            f"{CONFIG}.micro_batch_num",
            f"{share:.0%} of the time stages wait (bubble)",
            f"write {4 * v.pp} or more",
        )


def p9(v: View) -> Iterator[Problem]:
    if v.pp == 1 and v.parallel("micro_batch_num") > 1:
        yield (f"{CONFIG}.micro_batch_num", "more than 1 without a pipeline", "use gradient_accumulation_steps")


def p10(v: View) -> Iterator[Problem]:
    if v.accumulation > 1 and v.pp > 1:
        found = f"gradient_accumulation_steps {v.accumulation} in a pipeline"
        yield ("runner_config.gradient_accumulation_steps", found, "use parallel_config.micro_batch_num")
    elif v.accumulation > 1 and not v.semi_auto:
        found = f"gradient_accumulation_steps {v.accumulation} outside semi_auto"
        yield ("runner_config.gradient_accumulation_steps", found, "write parallel.parallel_mode: 1")


def p11(v: View) -> Iterator[Problem]:
    if v.servers > 1 and v.servers % v.pp and v.pp % v.servers:
        yield (f"{CONFIG}.pipeline_stage", f"{v.servers} servers, {v.pp} stages", "choose a divisor of the servers")
    if v.mp > DEVICES_A_SERVER:
        yield (f"{CONFIG}.model_parallel", f"{v.mp} devices share each matrix, over several servers", "keep it up to 8")


def p12(v: View) -> Iterator[Problem]:
    for name in ("vocab_size", "hidden_size"):
        size = v.of_model(name)
        if v.semi_auto and v.section("parallel").get("enable_parallel_optimizer") and size and size % v.devices:
            yield (
                v.model_key(name),
                f"{size} is no multiple of {v.devices} devices",
                "such tensors stay whole on each device",
            )


def p13(v: View) -> Iterator[Problem]:
    options = v.section("parallel").get("parallel_optimizer_config") or {}
    size = options.get("optimizer_weight_shard_size")
    if isinstance(size, int) and size > 0 and v.dp % size:
        key = "parallel.parallel_optimizer_config.optimizer_weight_shard_size"
        yield (key, f"{size} does not divide data_parallel {v.dp}", "choose a divisor")


def p14(v: View) -> Iterator[Problem]:
    size = v.of_model("vocab_size")
    if v.mp > 1 and not v.section(CONFIG).get("vocab_emb_dp", True) and size and size % v.mp:
        yield (
            v.model_key("vocab_size"),
            f"{size} rows over {v.mp} devices",
            "write parallel_config.vocab_emb_dp: True",
        )


def p15(v: View) -> Iterator[Problem]:
    if v.cp == 1:
        return
    if not v.model.get("use_flash_attention"):
        yield ("model.model_config.use_flash_attention", "off with context_parallel", "write True")
    kind = v.section(CONFIG).get("context_parallel_algo", "colossalai_cp")
    if kind == "ulysses_cp" and v.kv_heads and v.cp * v.mp > v.kv_heads:
        yield (f"{CONFIG}.context_parallel", f"{v.cp} x {v.mp} for {v.kv_heads} key-value heads", "lower it")
    degree = v.parallel("ulysses_degree_in_cp")
    if v.cp % degree:
        yield (f"{CONFIG}.ulysses_degree_in_cp", f"{degree} does not divide {v.cp}", "choose a divisor")


def p16(v: View) -> Iterator[Problem]:
    experts = whole(v.section("moe_config").get("expert_num"), 1)
    if experts > 1 and v.mp > 1 and not v.section(CONFIG).get("use_seq_parallel"):
        yield (f"{CONFIG}.use_seq_parallel", "off with experts and model_parallel", "write True")


def p17(v: View) -> Iterator[Problem]:
    length = v.of_model("seq_length")
    if v.section(CONFIG).get("use_seq_parallel") and length and length % v.mp:
        yield ("model.model_config.seq_length", f"{length} over {v.mp} devices", "choose a multiple")


def p18(v: View) -> Iterator[Problem]:
    if v.legacy:
        return
    if whole(v.content.get("micro_batch_interleave_num"), 1) > 1:
        yield ("micro_batch_interleave_num", "more than 1 for a Mcore model", "write 1")
    if v.section("recompute_config").get("recompute_slice_activation"):
        yield ("recompute_config.recompute_slice_activation", "on for a Mcore model", "write False")
    if v.parallel("seq_split_num") > 1:
        yield (f"{CONFIG}.seq_split_num", "more than 1 for a Mcore model", "write 1")


def p19(v: View) -> Iterator[Problem]:
    pieces, length = v.parallel("seq_split_num"), v.of_model("seq_length")
    if pieces == 1:
        return
    if length and length % pieces:
        yield (f"{CONFIG}.seq_split_num", f"{pieces} pieces of {length} tokens", "choose a divisor")
    if v.section("recompute_config").get("recompute") is True:
        yield ("recompute_config.recompute", "full recomputation with split sequences", "use select_recompute")
    if v.content.get("calculate_per_token_loss"):
        yield ("calculate_per_token_loss", "on with split sequences", "write False")


def p20(v: View) -> Iterator[Problem]:
    mean = v.section("parallel").get("gradients_mean", False)
    if v.semi_auto and mean:
        yield ("parallel.gradients_mean", "True in semi_auto", "write False")
    if v.data_parallel_mode and not mean:
        yield ("parallel.gradients_mean", "False in data parallel: gradients are summed over the devices", "write True")


def p21(v: View) -> Iterator[Problem]:
    group = v.section(CONFIG).get("gradient_aggregation_group", 4)
    if whole(group, 0) < 1:
        yield (f"{CONFIG}.gradient_aggregation_group", f"{group!r}", "write a whole number from 1 on, such as 4")


def b1(v: View) -> Iterator[Problem]:
    parallel = v.section("parallel")
    if (
        v.semi_auto
        and parallel.get("full_batch", True)
        and parallel.get("dataset_strategy", "full_batch") != "full_batch"
    ):
        yield ("parallel.dataset_strategy", "given beside full_batch: True", "leave one of them out")


def b2(v: View) -> Iterator[Problem]:
    parallel, columns = v.section("parallel"), v.dataset.get("input_columns") or []
    if not v.semi_auto or parallel.get("full_batch", True):
        return
    key, strategy = "parallel.dataset_strategy", parallel.get("dataset_strategy")
    fit = [_strategy_of(column, v.dp) for column in columns] or [[v.dp, 1]]
    if not isinstance(strategy, list) or not strategy or not all(isinstance(part, list) and part for part in strategy):
        yield (key, f"{strategy!r} with full_batch: False", f"write {fit}")
    elif strategy[0][0] != v.dp:
        yield (key, f"{strategy[0][0]} for data_parallel {v.dp}", f"write {fit}")
    elif columns and len(strategy) != len(columns):
        yield (key, f"{len(strategy)} entries for {len(columns)} input columns", f"write {fit}")
    elif columns and [len(part) for part in strategy] != [len(part) for part in fit]:
        yield (key, f"{strategy} for the columns {columns}", f"write {fit}")


def b3(v: View) -> Iterator[Problem]:
    of_dataset = v.dataset.get("batch_size")
    if isinstance(of_dataset, int) and "batch_size" in v.section("runner_config") and of_dataset != v.batch_size:
        yield (
            "train_dataset.batch_size",
            f"{of_dataset}, and runner_config.batch_size is {v.batch_size}",
            "leave it out",
        )


def b4(v: View) -> Iterator[Problem]:
    if not v.semi_auto and v.section("parallel").get("full_batch") is True:
        yield ("parallel.full_batch", "True outside semi_auto", "leave it out")


def b5(v: View) -> Iterator[Problem]:
    sizes = v.loader.get("sizes")
    if v.megatron is not None and isinstance(sizes, list) and sizes and whole(sizes[0], 1) < v.global_batch:
        yield (
            "train_dataset.data_loader.sizes",
            f"{sizes[0]} samples, {v.global_batch} a step",
            "lower the global batch",
        )


def even_offset(layers: int, stages: int, interleave: int = 1) -> list[int] | None:
    """Return how many layers more than an equal share each pipeline stage takes, the later stages first, as they keep fewer
    micro batches; None where nothing is left over.
    """
    rest = layers % (stages * interleave)
    return [rest // stages + (stage >= stages - rest % stages) for stage in range(stages)] if rest else None


def _interleave(v: View) -> int:
    return whole(v.model.get("pp_interleave_num", v.parallel("pp_interleave_num")), 1)


def _strategy_of(column: Any, copies: int) -> list[int]:
    return [copies, 1, 1, 1] if column == "attention_mask" else [copies, 1]


RULES = (
    Rule("P1", "error", "mindformers refuses another number of devices", p1),
    Rule("P2", "warning", "mindformers sets it back to 1 in data parallel", p2),
    Rule("P3", "error", "each device needs whole heads", p3),
    Rule("P4", "error", "each device needs whole key-value heads", p4),
    Rule("P5", "error", "matrices are divided by rows or columns", p5),
    Rule("P6", "error", "each pipeline stage needs its layers", p6),
    Rule("P7", "error", "each interleaved part needs a layer", p7),
    Rule("P8", "error", "a pipeline needs a micro batch for each stage", p8),
    Rule("P8", "warning", "few micro batches leave stages idle", p8_bubble),
    Rule("P9", "error", "it has no effect, and the global batch is smaller than it looks", p9),
    Rule("P10", "error", "mindformers sets it back to 1, and the global batch is smaller than it looks", p10),
    Rule("P11", "warning", "traffic of every layer would leave the server", p11),
    Rule("P12", "warning", "the optimizer cannot shard that tensor", p12),
    Rule("P13", "error", "shards are of one size", p13),
    Rule("P14", "error", "the embedding cannot be divided", p14),
    Rule("P15", "error", "context parallelism asks for it", p15),
    Rule("P16", "error", "mindformers asks for sequence parallelism there", p16),
    Rule("P17", "error", "sequence parallelism divides the sequence", p17),
    Rule("P18", "error", "Mcore models do not support it", p18),
    Rule("P19", "error", "sequence pipelining does not go with it", p19),
    Rule("P20", "warning", "gradients, and so the learning rate, are off by the number of devices", p20),
    Rule("P21", "error", "it counts groups of gradients", p21),
    Rule("B1", "warning", "mindformers sets it back to full_batch", b1),
    Rule("B2", "error", "each input column is divided over the copies", b2),
    Rule("B3", "warning", "the runner's wins", b3),
    Rule("B4", "warning", "mindformers sets it to False there", b4),
    Rule("B5", "error", "not one step an epoch: incomplete batches are dropped", b5),
)
