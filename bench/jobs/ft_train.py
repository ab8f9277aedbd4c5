"""The lab's training job under NVIDIA's rank monitors: a heartbeat after every step, as its documentation asks of a script."""

from __future__ import annotations

import sys
from typing import Any

import nvidia_resiliency_ext.fault_tolerance as ft

from minder.simulate.lab import train

client = ft.RankMonitorClient()
client.init_workload_monitoring()
train_step = train._train_step


def monitored(job: Any, step: int) -> None:
    train_step(job, step)
    client.send_heartbeat()


train._train_step = monitored
train.main(train.parse(sys.argv[1:]))
client.shutdown_workload_monitoring()
