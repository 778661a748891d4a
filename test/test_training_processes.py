"""Two processes under torchrun, on CPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from training_support import CONFIG, SyntheticSamples, make_maker, write_config

from vag_policy import checkpoint
from vag_policy.training.batches import Place
from vag_policy.training.objective import Objective
from vag_policy.training.reporting import read_log
from vag_policy.training.start import start_policy

SCRIPT = Path(__file__).with_name("training_processes.py")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    stage = CONFIG["stages"][0] | {"steps": 3, "batch": 8}
    config = write_config(folder / "config.yaml", stages=[stage], data={"relative_actions": True})
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(folder / "config.yaml"), str(folder / "run")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return config, folder / "run", done


def test_both_kinds_of_distribution_ran(run):
    _, out, done = run
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("step 0 of 3") == 1  # one process reports
    assert len(read_log(out)) == 3
    assert np.isfinite(checkpoint.load(out / "policy").model.head.action_out.weight.detach().numpy()).all()


@torch.no_grad()
def test_a_step_s_loss_is_the_mean_over_processes_and_micro_batches(run):
    config, out, _ = run
    policy = start_policy(config, SyntheticSamples())
    objective = Objective(config.settings(), policy.model.backbone, policy.model.head)
    maker, stage = make_maker(processes=2), config.stages[0]
    losses, seen = [], []
    for process in range(2):
        for micro in range(stage.accumulate):
            place = Place(config.seed, 0, 0, micro, process)
            batch = maker.make(place, stage)
            seen += maker.indices(place, stage).tolist()
            frames = batch.frames.permute(0, 4, 1, 2, 3).float() / 127.5 - 1
            losses.append(objective(batch, policy.model.tokenizer.encode(frames), stage)["loss"].item())
    assert len(set(seen)) == stage.batch
    assert read_log(out)[0]["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
