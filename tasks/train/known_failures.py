"""Failures that leave a line in a log: how the line looks, what it means, and what to change.

Sources: MindSpore's FAQ, the CANN and HCCL fault codes, public issues of the projects involved, and what was met here.
`{name}` in a text stands for what the pattern's group of that name found.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """One known failure.

    `verdict`: what this project itself said, which comes before all else. `follows`: it most often follows from an error of
    another process, which is looked for first. `note`: what goes on all the same, so that it is never why a training ended.
    `outside`: nothing is wrong with the training, which may go on from its last checkpoint.
    """

    name: str
    pattern: str
    cause: str
    mend: str
    follows: bool = False
    note: bool = False
    verdict: bool = False
    outside: bool = False


FAILURES = (
    Failure("training_stopped", r"TrainingStopped: (?P<said>.*)", "{said}", "", verdict=True),
    # The environment.
    Failure(
        "transformers_name_taken",
        r"'(?P<what>[\w-]+)' is already used by a Transformers config, pick another name",
        "a package registers the name {what} with Hugging Face's transformers, which has a model of that name itself (aimv2 "
        "since 4.54): two versions that do not fit, not a name in your configuration",
        "pin transformers to what mindformers asks for (4.57.1 for 1.9.0, 4.51.3 for 1.6 and 1.7), or upgrade the package "
        "that registers it (older vLLM); `mindpretrain doctor` shows which",
    ),
    Failure(
        "numpy_2",
        r"_ARRAY_API not found|module that was compiled using NumPy 1\.x cannot be run in\s+NumPy 2",
        "NumPy 2 under a MindSpore that was built for NumPy 1",
        "install numpy<2, as requirements.lock has it",
    ),
    Failure(
        "no_wheel",
        r"No matching distribution found for (?P<what>mindspore\S*)",
        "there is no wheel of {what} for this Python, system or processor",
        "use Python 3.11 on Linux, x86-64 or aarch64, with a recent glibc",
    ),
    Failure(
        "operator_missing",
        r"(?:cannot import name|module 'mindspore[\w.]*' has no attribute) '(?P<what>\w+)'",
        "mindformers looks for {what}, which this MindSpore does not have: the two versions do not fit",
        "install the exact pair of the version matrix; `mindpretrain doctor` names it",
    ),
    Failure(
        "protobuf",
        r"Descriptors cannot be created directly|TypeError: Descriptors cannot not be created directly",
        "protobuf is newer than the generated code of a package",
        "install the protobuf that requirements.lock pins",
    ),
    Failure(
        "cann_library",
        r"(?P<what>lib(?:ascendcl|hccl|ge_runner|runtime|ascend_hal)\S*\.so\S*): cannot open shared object file",
        "CANN's library {what} is not found",
        "run `source /usr/local/Ascend/ascend-toolkit/set_env.sh` in the shell or unit that starts the training",
    ),
    Failure(
        "cann_version",
        r"(?:MindSpore version \S+ and Ascend AI software package.*not match|CANN version.*(?:not match|mismatch))",
        "MindSpore and CANN are not of one row of the version matrix",
        "install the CANN of the matrix (9.0.0 for MindSpore 2.9.0), and its driver",
    ),
    Failure(
        "git_head_build",
        r"export: \(HEAD: bad variable name|export: HEAD.*: bad variable name",
        "build.sh was run by sh in a detached checkout",
        "run it with bash, in a checkout of a tag",
    ),
    # The configuration.
    Failure(
        "unexpected_key",
        r"The config '(?P<where>\w+)' gets an unexpected key: (?P<what>\w+)",
        "the YAML's section {where} has a key that mindformers does not know: {what}",
        "`mindpretrain check FILE` names the real key, also for sections that mindformers does not look at",
    ),
    Failure(
        "useless_configs",
        r"Some configs in yaml are useless for train: \[(?>(?:'(?:auto_tune|autotune_per_step|eval_dataset|"
        r"eval_dataset_task|filepath_prefix|processor)'(?:, )?)*)(?P<what>[^\]]+)\]",  # those are mindformers' own
        "sections of the YAML that mindformers does not know were left out: {what}; what they say does not apply",
        "`mindpretrain check FILE` names the real keys",
        note=True,
    ),
    Failure(
        "number_as_text",
        r"(?:For .*, the type of `?(?P<what>\w+)`? should be .*(?:int|float).*but got .*str|"
        r"the input argument.*'(?P<also>\w+)'.*must be.*float.*str)",
        "a number in the YAML is text: YAML 1.1 takes 1e-8 for text, as it has no dot",
        "write 1.e-8",
    ),
    Failure(
        "missing_yaml_section",
        r"The config '(?P<where>\w+)' is missing a required key: (?P<what>\w+)",
        "the YAML's section {where} lacks {what}",
        "add it; `mindpretrain yaml CONFIG` shows a whole file",
    ),
    Failure(
        "parallel_product",
        r"(?:data_parallel|dp).*(?:model_parallel|mp).*(?:pipeline_stage|pp).*(?:device_num|rank_size|should be equal|must"
        r" be equal)",
        "data x model x pipeline x context parallel is not the number of devices (P1)",
        "make the product equal; `mindpretrain plan CONFIG --devices N` proposes layouts",
    ),
    Failure(
        "heads_not_divisible",
        r"(?:num_heads|n_kv_heads?|num_query_groups|'?hidden_size'?).{0,80}must be.{0,20}(?:divisible|multiple).{0,80}"
        r"(?:parallel|mp|tensor|num_heads)",
        "heads, key-value heads or the hidden size cannot be divided over the tensor-parallel devices (P3 to P5)",
        "choose a tensor parallelism that divides num_heads, num_kv_heads, hidden_size and intermediate_size",
    ),
    Failure(
        "strategy_split",
        r"np_tensor can not be split by strategy",
        "a tensor cannot be divided over the devices, most often the embedding (P14)",
        "choose a tensor parallelism that divides vocab_size, or write vocab_emb_dp: True",
    ),
    Failure(
        "few_layers",
        r"(?:num_layers|layers).{0,60}(?:less than|smaller than|greater than or equal).{0,40}(?:pipeline|pp|stage)",
        "fewer layers than pipeline stages, or a stage without layers (P6)",
        "lower training.parallel.pipeline, or give layer_offset",
    ),
    Failure(
        "dataset_strategy",
        r"data_parallel \d+ should be equal to dataset_strategy\[0\]\[0\] \d+|"
        r"full_batch=False, dataset_strategy must be set as",
        "dataset_strategy does not fit data_parallel (B2)",
        "give one [data_parallel, 1] for each input column, or full_batch: True",
    ),
    Failure(
        "accumulation_ignored",
        r"Reset the gradient_accumulation_steps from (?P<what>\d+) to 1",
        "gradient_accumulation_steps {what} was set back to 1: it has no effect in a pipeline or outside semi_auto (P10)",
        "in a pipeline use micro_batch_num; else parallel_mode: 1",
        note=True,
    ),
    Failure(
        "use_past",
        r"network should be configured to use_past=False",
        "use_past is for inference (C5)",
        "write use_past: False",
    ),
    # The data.
    Failure(
        "mindrecord_without_db",
        r"MindRecordOp Count total rows failed|(?:mindrecord|\.db).{0,80}(?:not exist|is not found|invalid)",
        "a MindRecord file has no .db beside it, or was renamed: the name is inside",
        "copy both files, under the names that they were written with, or run pack again",
    ),
    Failure(
        "mindrecord_unreadable",
        r"(?P<said>MindDataset: .*|.*[Ii]nvalid mindrecord file.*|.*mindrecord file.*(?:failed|meta).*)",
        "the token dataset cannot be read: {said}",
        "run pack again",
    ),
    Failure(
        "data_push",
        r"TDT Push data into device Failed|GetNext.{0,40}(?:timeout|failed)|Get data from queue timeout",
        "a device waited for data in vain: an earlier error elsewhere, more steps than batches, or a slow reader",
        "look at the first error of all ranks; compare steps with the dataset's batches; raise the readers' threads",
        follows=True,
    ),
    Failure(
        "no_thread",
        r"can't start new thread|pthread_create failed|Resource temporarily unavailable.*thread",
        "the system allows no more threads",
        "lower num_parallel_workers, or raise `ulimit -u`",
    ),
    Failure(
        "megatron_index",
        r"(?:FileNotFoundError|No such file).*[-_](?:document|doc|sample|shuffle)_(?:index|idx)\.npy",
        "the Megatron loader's index files are not on this host: they were built on another one",
        "put path_to_cache on a folder that all hosts share",
    ),
    Failure(
        "id_out_of_range",
        r"(?:[Ii]ndex|indices|token id).{0,60}out of (?:range|bounds?)|GatherV?2?.{0,80}out of range",
        "a token id is not below vocab_size: another tokenizer's data (D3)",
        "`mindpretrain check-tokens` finds the largest id; use the tokenizer that made the data",
    ),
    Failure(
        "broadcast_level",
        r"dataset_broadcast_opt_level",
        "Megatron data under several devices needs dataset_broadcast_opt_level 3 (D2)",
        "name a parallel_speed_up.json with it in context.ascend_config, as `mindpretrain yaml` writes",
    ),
    # Memory.
    Failure(
        "card_in_use",
        r"may be other processes occupying this card|[Mm]alloc device memory failed",
        "the device's memory is taken, most often by another process",
        "end what `npu-smi info` shows on the card, then lower context.max_device_memory",
    ),
    Failure(
        "communication_memory",
        r"HcclCommInitRootInfo failed|HcclCommInit\w* failed.*memory",
        "no memory was left for communication buffers (some 200 MB a group)",
        "lower max_device_memory (58GB of 64), or HCCL_BUFFSIZE",
    ),
    Failure(
        "out_of_memory",
        r"[Oo]ut of memory|OutOfMemory|bad_alloc|Cannot allocate memory|[Mm]emory not enough|Allocate memory failed|"
        r"NPU out of memory|memory isn't enough",
        "out of memory",
        "lower training.batch_size; then recompute: full, optimizer_sharding, tensor; `mindpretrain plan` shows what fits",
    ),
    Failure(
        "killed",
        r"Worker process \d+ exit with exception\. Error code: -9|^Killed$|Killed process \d+|oom-kill",
        "a process was ended from outside by signal 9; most often the system, for want of memory",
        "lower training.batch_size or the readers' memory, or find out who ended it (`dmesg`)",
        follows=True,
        outside=True,
    ),
    Failure(
        "terminated",
        r"Worker process \d+ exit with exception\. Error code: -(?P<signal>\d+)",
        "a process was ended from outside by signal {signal}",
        "",
        follows=True,
        outside=True,
    ),
    Failure(
        "no_space",
        r"No space left on device|Disk quota exceeded",
        "no space left",
        "free some and run the same command again",
    ),
    # Starting on several devices and hosts.
    Failure(
        "host_name_unknown",
        r"socket\.gaierror: \[Errno -[23]\]|gaierror.*Name or service not known",
        "a host name is not known on this host",
        "add it to /etc/hosts or DNS on every host, or write addresses in training.hosts",
    ),
    Failure(
        "dns",
        r"DNS resolution failed",
        "the master's name cannot be resolved on this host",
        "write its address in training.hosts, or mend the name service",
    ),
    Failure(
        "rank_table",
        r"Init plugin so failed, ret = 1343225860",
        "the rank table is wrong",
        "`mindpretrain ranktable check FILE`, or start with msrun, which needs none",
    ),
    Failure(
        "same_host_name",
        r"device id: \d+.{0,80}[Gg]ot device count\[\d+\]",
        "two hosts have one name, so ranks were counted on",
        "give each host a name of its own",
    ),
    Failure(
        "scheduler_port",
        r"MS_SCHED_PORT is occupied",
        "the workers did not find each other, most often because another program took their port",
        "run the same command again",
        outside=True,
    ),
    Failure(
        "port_taken",
        r"[Aa]ddress already in use|bind.{0,40}address in use|The port .{0,20} (?:is )?(?:occupied|in use)",
        "the port for the workers is taken",
        "run the same command again, or choose another --master_port",
        outside=True,
    ),
    Failure(
        "unique_id",
        r"Failed to fetch the unique id",
        "rank 0 did not answer: it has failed, or the cluster is large",
        "look at rank 0's log; raise MS_NODE_TIMEOUT (900 to 1800 s from 128 devices on)",
        follows=True,
    ),
    Failure(
        "not_all_registered",
        r"(?:[Tt]he total number of registered nodes|registered.{0,40}less than|Topology build timed out|"
        r"building networking.*timed? ?out|cluster.{0,30}timed? ?out)",
        "not all workers came: a host was not started, or with another count of workers or another master",
        "start the same command on every host within cluster_time_out; the local counts must add up to worker_num",
        follows=True,
    ),
    Failure(
        "scheduler_lost",
        r"The scheduler.{0,60}(?:exited|disconnected|lost)|[Ff]ailed to connect to.{0,30}scheduler|"
        r"heartbeat.{0,40}(?:lost|timed? ?out)",
        "a process lost the scheduler, or it lost a worker: that one has ended",
        "look at the first error of all ranks",
        follows=True,
        outside=True,
    ),
    Failure(
        "link_timeout",
        r"EI0006|wait socket establish timeout|[Gg]etting socket times? ?out",
        "a rank did not come to the connection in time: it failed earlier, was started late, or a firewall is between",
        "look at the first error of all ranks; set HCCL_CONNECT_TIMEOUT (1800) alike on all hosts",
        follows=True,
    ),
    Failure(
        "collective_timeout",
        r"EI0002|\b507011\b|\b507046\b|[Nn]otify wait.{0,20}timeout",
        "ranks waited for one another longer than HCCL_EXEC_TIMEOUT: one has failed, hangs, or saves or evaluates too long",
        "look at the first error of all ranks; raise HCCL_EXEC_TIMEOUT above the longest pause",
        follows=True,
    ),
    Failure(
        "part_not_connected",
        r"EI0015",
        "some ranks were never connected: fewer processes were started than worker_num says",
        "count the workers of each host",
        follows=True,
    ),
    Failure(
        "msrun_one_worker",
        r"You should use python instead of msrun",
        "mindformers' launcher trains nothing with one worker, and ends with status 0",
        "start one worker by python",
    ),
    Failure(
        "device_error",
        r"EZ9999|\b507015\b|\b507018\b|aicore (?:exception|error)|Aicpu kernel execute failed",
        "an operator failed on the device",
        "read the lines after it; if it comes again on the same card only, have the card checked",
        outside=True,
    ),
    Failure(
        "uncorrectable_memory",
        r"UCE|HBM.{0,30}(?:ECC|error)|multi bit ecc",
        "a device reports errors of its memory",
        "take the card out and have it checked",
        outside=True,
    ),
    # Learning.
    Failure(
        "loss_scale_floor",
        r"[Cc]urrent loss scale already at minimum|loss scale.{0,40}(?:less than 1|reached the minimum)",
        "the loss scale is at its floor and gradients still overflow",
        "halve training.learning_rate, lengthen the warm-up, or train in bf16",
    ),
    Failure(
        "still_update",
        r"overflow, still update",
        "gradients that overflowed were applied",
        "use a step that skips them, as MFTrainOneStepCell does",
        note=True,
    ),
    Failure(
        "not_finite",
        r"(?:loss|grad\w*|global_norm).{0,30}(?:\bnan\b|\binf\b|NaN|is not finite)",
        "the loss or the gradients became infinite or no number",
        "lower training.learning_rate, lengthen training.warmup_share, and look at the sequences of that step",
    ),
    Failure(
        "no_kernel",
        r"(?P<said>Unsupported op \[\w+\] on \w+)",
        "{said}: no such kernel",
        "change training.precision or the model",
    ),
    # Checkpoints.
    Failure(
        "nothing_to_resume",
        r"No checkpoint could be resumed|(?:load_checkpoint|checkpoint).{0,60}(?:is empty|does not exist|not found)",
        "there is no checkpoint to go on from: a rank's file is missing, or the folder is empty",
        "name a folder with whole checkpoints; else mindformers begins from random weights",
    ),
    Failure(
        "random_weights",
        r"(?:fall back to|train(?:ing)? from) (?:pretraining with )?random(?:ly)? initialized|"
        r"parameters? (?:is|are) not loaded",
        "weights were not loaded, and training begins from random ones",
        "name a checkpoint that fits the model",
        note=True,
    ),
    Failure(
        "wrong_shape",
        r"(?:[Ss]hape|size).{0,80}(?:not match|mismatch|inconsistent|different)|"
        r"net_param.{0,60}shape.{0,60}(?:not|different)",
        "a checkpoint's parameter has another shape than the model's",
        "use the model's own sizes: vocabulary, hidden size, layers, heads",
    ),
    Failure(
        "strategy_missing",
        r"(?:src_strategy|strategy file|ckpt_strategy).{0,60}(?:not exist|not found|is empty|None)",
        "a distributed checkpoint cannot be converted without its strategy files",
        "give src_strategy_path_or_dir, on a folder that all hosts share",
    ),
    Failure(
        "not_shared",
        r"(?:auto_trans_ckpt|shared (?:directory|storage|disk)).{0,80}(?:not|must|should)",
        "the output folder is not one that all hosts share",
        "put the workspace on storage that every host sees under the same path",
    ),
    Failure(
        "damaged_safetensors",
        r"SafetensorError|HeaderTooSmall|MetadataIncompleteBuffer|incomplete metadata|"
        r"invalid.{0,20}header.{0,20}safetensors",
        "a checkpoint's file is damaged or half written",
        "delete that checkpoint; the one before it is used",
    ),
    # What only passes an error of another process on.
    Failure(
        "job_exited",
        r"Distributed job exited with exception",
        "msrun says that a worker failed",
        "look at the workers' logs",
        follows=True,
    ),
)
