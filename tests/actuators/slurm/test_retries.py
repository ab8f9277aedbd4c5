"""Who owns the retries of a Slurm job: scripts that start their ranks again by themselves, and scripts that do not."""

from __future__ import annotations

import pytest

from minder.act.actuators.slurm.retries import find_retries

OWN = [
    "#!/bin/bash\n#SBATCH -N4\nsrun torchrun --nnodes 4 --max-restarts 3 train.py\n",
    "srun torchrun --max_restarts=100 \\\n  train.py\n",
    "torchrun \\\n  --nnodes=2 \\\n  --max-restarts=$RETRIES train.py\n",
    "until srun python train.py; do sleep 30; done\n",
    "while true; do\n  srun torchrun train.py && break\n  sleep 10\ndone\n",
    "for i in $(seq 5); do\n  accelerate launch train.py && break\ndone\n",
    "trap 'scontrol requeue $SLURM_JOB_ID' USR1\nsrun python train.py\n",
]
NONE = [
    "#!/bin/bash\nsrun torchrun --nnodes 4 --max-restarts 0 train.py\n",
    "srun torchrun --max_restarts=0 train.py\n",
    "# while true; do srun python train.py; done\nsrun python train.py\n",
    "for seed in 1 2 3; do srun python train.py --seed $seed; done\n",
    "while ! test -f ready; do sleep 1; done\nsrun deepspeed train.py\n",
    "for node in $(scontrol show hostnames); do echo $node; done\nsrun python -m train\n",
]


@pytest.mark.parametrize("script", OWN)
def test_a_script_that_starts_its_ranks_again_owns_their_retries(script: str) -> None:
    assert find_retries(script)


@pytest.mark.parametrize("script", NONE)
def test_a_script_that_starts_its_ranks_once_leaves_them_to_slurm(script: str) -> None:
    assert find_retries(script) == ""
