"""Each stage is failed once, and run again alone from where it failed: by Prefect's retry, and by `--only`."""

import shutil
from pathlib import Path

import pytest

from tasks.local_server import LocalServer
from tests.conftest import RunCommand
from tests.flows.conftest import STAGES, artifact_of, write_config
from tests.flows.test_pretrain import last_flow_run, prefect, states


@pytest.mark.slow
def test_each_stage_is_retried_from_where_it_failed_and_run_alone(
    mindpretrain: RunCommand, server: LocalServer, tmp_path: Path
) -> None:
    """The switch that makes a stage fail is a file where it needs a folder; taking it away removes the cause."""
    config = write_config(tmp_path)
    for place, stage in enumerate(STAGES):
        switch = tmp_path / "runs" / "artifacts" / stage
        switch.parent.mkdir(parents=True, exist_ok=True)
        switch.touch()
        failed = mindpretrain("run", config, "--until", stage)
        assert failed.returncode == 1
        assert f"error: {stage}: " in failed.stderr
        assert states(failed.stdout) == dict.fromkeys(STAGES[:place], "Cached")

        run = last_flow_run(server)
        switch.unlink()
        retried = prefect(server, "flow-run", "retry", run["id"], "--entrypoint", "flows/pretrain.py:pretrain")
        assert retried.returncode == 0, retried.stdout + retried.stderr
        assert last_flow_run(server)["state"]["type"] == "COMPLETED"
        assert (retried.stdout + retried.stderr).count("Finished in state Cached") == place

        shutil.rmtree(artifact_of(config, stage))
        alone = mindpretrain("run", config, "--only", stage)
        assert alone.returncode == 0, alone.stderr
        assert states(alone.stdout) == {stage: "Completed"}
