"""A short training that must succeed before the long one may start.

It runs the same code on the same devices as pretrain, so what breaks there breaks here in minutes. The gates are in
`train/gates.py`; the report, `smoke.json`, says what each found.
"""

from dataclasses import asdict

from configs.errors import PipelineError
from configs.schema import RunConfig
from tasks.files import write_json
from tasks.stage import Stage, StageResult, StageRun
from tasks.train.gates import judge, likely_cause
from tasks.train.initial import first_weights
from tasks.train.job import PROBES
from tasks.train.metrics import rank_metrics
from tasks.train.stages import (
    LIBRARIES,
    describe,
    make_job,
    read_probes,
    run_training,
    steps_per_epoch,
    training_settings,
)

REPORT = "smoke.json"


def build(run: StageRun) -> StageResult:
    dataset, folder = run.dataset, run.draft.folder
    steps_per_epoch(dataset.manifest, run.config)
    job = make_job(
        run.config,
        dataset,
        folder,
        run.config.smoke.steps,
        checkpoint_every=None,
        keep_checkpoints=2,
        init_weights=first_weights(run.config.model, folder, dataset.manifest.stats["vocab_size"]),
        probe=True,
    )
    training = run_training(run, job)
    gates = judge(training, rank_metrics(folder), read_probes(folder, PROBES), run.config, dataset.manifest.stats)
    write_json(folder / REPORT, [asdict(gate) for gate in gates])
    failed = [gate for gate in gates if not gate.passed]
    if failed:
        problems = [f"{gate.name}: {gate.found}; {gate.mend}" for gate in failed]
        cause = likely_cause(gates, training, job.vocab_size)
        raise PipelineError(
            "\n  ".join(["smoke: the training is not fit to go on:", *problems, f"most likely cause: {cause}"])
        )
    return StageResult(describe(run, [folder / REPORT]), training.stats() | {"gates": len(gates)})


def settings(config: RunConfig) -> dict[str, object]:
    return training_settings(config) | {"smoke": config.smoke.model_dump()}


STAGE = Stage(name="smoke", version=2, libraries=LIBRARIES, settings=settings, build=build)
