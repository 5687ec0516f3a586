"""Tells a Prefect server all that it needs: work pool, limit on trainings, the automation for dead runs, the deployments."""

import subprocess
import sys
from pathlib import Path

import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.events.schemas.automations import AutomationCore

from configs.errors import PipelineError
from tasks.cached_task import TRAINING_LIMIT

PROJECT = Path(__file__).resolve().parents[1]
FOLDER = PROJECT / "deploy"
POOL = "mindpretrain"


def deploy(trainings_at_once: int) -> None:
    """Make or renew everything. What is there already is set to what it should be.

    Raises:
        PipelineError: the deployments could not be made.
    """
    automations = yaml.safe_load((FOLDER / "automations.yaml").read_text(encoding="utf-8"))["automations"]
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"), overwrite=True)
        client.upsert_global_concurrency_limit_by_name(TRAINING_LIMIT, trainings_at_once)
        for described in automations:
            for old in client.read_automations_by_name(described["name"]):
                client.delete_automation(old.id)
            client.create_automation(AutomationCore.model_validate(described))
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(
        [*command, "--prefect-file", "deploy/prefect.yaml"], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PipelineError(f"deploy/prefect.yaml: not deployed:\n{done.stdout}{done.stderr}")
