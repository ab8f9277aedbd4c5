"""How series reach the Prometheus: replicas, second scrapes, gateways, federation."""

from __future__ import annotations

from tests.doctor.exporters import dcgm, labelled, node
from tests.doctor.recorded import Target
from tests.doctor.situation import NAMES, WORK, bare, each, full, site

# One scraper too many, or one too few.
for _label in ("thanos_replica", "__replica__", "prometheus", "receive", "replica_id"):
    site(
        f"every series twice, by replicas that differ in {_label}",
        *(
            target
            for value in ("k8s-0", "k8s-1")
            for target in (
                *each("dcgm", full, "10.1.0.{n}:9400", **{_label: value}),
                *each("node", node, "10.1.0.{n}:9100", **{_label: value}),
            )
        ),
        values=WORK,
    )
site(
    "a second scrape job asks the same exporters more often",
    *each("dcgm", full, "10.1.0.{n}:9400", every="60s"),
    *each("dcgm-fast", full, "10.1.0.{n}:9400", every="5s"),
    *each("node", node, "10.1.0.{n}:9100", every="15s"),
    values=WORK,
    says=("scraped every 15 s", "dcgm: asks exporters that"),
)
site(
    "an exporter for each half of a machine's GPUs",
    *each("dcgm", lambda name: dcgm(name, name, (0, 1)), "10.1.0.{n}:9400"),
    *each("dcgm", lambda name: dcgm(name, name, (2, 3)), "10.1.0.{n}:9401"),
    *each("node", node, "10.1.0.{n}:9100"),
    values=WORK,
)
site(
    "two exporters on each machine give the same GPUs",
    *each("dcgm", full, "10.1.0.{n}:9400"),
    *each("dcgm", full, "10.1.0.{n}:19400"),
    *each("node", node, "10.1.0.{n}:9100"),
    values=WORK,
    says=("each reading comes from several ports",),
)
site(
    "all hosts behind one push gateway, labels honoured",
    Target(
        "pushgateway",
        "".join(labelled(dcgm(name) + node(name) + "push_time_seconds 1.8e9\n", job="node", instance=name) for name in NAMES),
        {"instance": "gateway:9091"}, True,
    ),
    values=WORK,
)  # fmt: skip
site(
    "all hosts behind one push gateway, labels not honoured",
    Target(
        "pushgateway", "".join(labelled(dcgm(name) + node(name), job="node", instance=name) for name in NAMES), {"instance": "gateway:9091"}
    ),
    values=WORK,
)
site(
    "exported_instance for the GPUs, instance for the hosts",
    Target("federate", "".join(labelled(dcgm(name), job="dcgm", instance=f"{name}:9400") for name in NAMES), {"instance": "lower:9090"}),
    *each("node", node, "{m}:9100"),
    values=WORK,
)
site(
    "federated: only sums by cluster are left",
    Target(
        "federate",
        labelled("cluster:dcgm_gpu_utilization:avg 91\ncluster:gpu_power_watts:sum 4900\ncluster:gpu_util_percent:avg 91\n", cluster="a"),
        {"instance": "lower:9090"}, True,
    ),
    machines=(),
    families=None,
    says=("nothing names the machine",),
    fine=False,
)  # fmt: skip
site(
    "sums by cluster beside the machines' own series",
    *each("dcgm", full, "{m}:9400"),
    *each("node", node, "{m}:9100"),
    Target("rules", 'cluster:gpu_sm_active:avg{cluster="a"} 0.7\ncluster:gpu_mem_copy_util_percent:avg{cluster="a"} 20\n', {}, True),
    values=WORK,
    absent=("gpu_sm_activity_ratio", "gpu_memory_bandwidth_ratio"),
)
site(
    "two servers, each with half of the machines",
    *each("dcgm", full, "10.1.0.{n}:9400", names=NAMES[:2], prometheus="shard-0"),
    *each("dcgm", full, "10.1.1.{n}:9400", names=NAMES[2:], prometheus="shard-1"),
    *each("node", node, "10.1.0.{n}:9100", names=NAMES[:2], prometheus="shard-0"),
    *each("node", node, "10.1.1.{n}:9100", names=NAMES[2:], prometheus="shard-1"),
    values=WORK,
)
site(
    "of two replicas the first does not reach one machine",
    *each("dcgm", full, "{m}:9400", names=NAMES[:3], replica="0"),
    *each("dcgm", full, "{m}:9400", replica="1"),
    *each("node", node, "{m}:9100", replica="0"),
    *each("node", node, "{m}:9100", replica="1"),
    values=WORK,
    says=('replica="1" is asked',),
)
site(
    "replicas in each of two clusters, one of which is selected",
    *(
        target
        for cluster in ("a", "b")
        for replica in ("0", "1")
        for target in (
            *each("dcgm", lambda name, c=cluster: dcgm(c + name, name), "10.1.0.{n}:9400", cluster=cluster, replica=replica),
            *each("node", node, "10.1.0.{n}:9100", cluster=cluster, replica=replica),
        )
    ),
    selector='cluster="a"',
    values=WORK,
)
site(
    "two scrape jobs for the two halves of each machine's GPUs",
    *each("dcgm-a", lambda name: dcgm(name, name, (0, 1)), "{m}:9400"),
    *each("dcgm-b", lambda name: dcgm(name, name, (2, 3)), "{m}:9401"),
    *each("node", node, "{m}:9100"),
    values=WORK,
    unsaid=("takes no part",),
)
site(
    "a scrape every two minutes",
    *each("dcgm", full, "{m}:9400", every="2m"),
    *each("node", node, "{m}:9100", every="2m"),
    says=("scraped every 120 s",),
    fine=False,
    values=WORK,
)
site(
    "agents push by remote write: all say localhost, and only the host label parts them",
    *each("dcgm", bare, "localhost:9400", host="{m}"),
    *each("node", lambda name: node(name), "localhost:9100", host="{m}"),
    values=WORK,
)
site(
    "host metrics twice: by node_exporter and by a collector's host metrics",
    *each("dcgm", full, "{m}:9400"),
    *each("node", node, "{m}:9100"),
    Target(
        "otel",
        "".join(
            labelled('system_memory_usage_bytes{state="used"} 6e11\nsystem_memory_usage_bytes{state="free"} 4e11\n', host_name=name)
            for name in NAMES
        ),
        {"instance": "collector:8889"},
    ),
    values={**WORK, "memory_usage_ratio": (0.59, 0.61)},
)
site(
    "GPU metrics twice: by DCGM, and by another exporter in other units",
    *each("dcgm", full, "{m}:9400"),
    *each("smi", lambda name: "".join(f'nvidia_smi_power_draw_watts{{uuid="GPU-{name}-{n}"}} 611\n' for n in (0, 1)), "{m}:9835"),
    *each("node", node, "{m}:9100"),
    values=WORK,
)
site(
    "three replicas, of which one is an hour behind",
    *each("dcgm", full, "{m}:9400", replica="0"),
    *each("dcgm", full, "{m}:9400", replica="1"),
    *(Target("dcgm", full(name), {"instance": f"{name}:9400", "replica": "2"}, age_s=200.0) for name in NAMES),
    *each("node", node, "{m}:9100", replica="0"),
    *each("node", node, "{m}:9100", replica="1"),
    values=WORK,
)
site(
    "a replica's label only where a rule has recorded something",
    *each("dcgm", full, "{m}:9400"),
    *each("node", node, "{m}:9100"),
    Target(
        "rules",
        'instance:node_cpu:ratio{instance="gpu-1",replica="a"} 0.5\ninstance:node_cpu:ratio{instance="gpu-1",replica="b"} 0.5\n',
        {},
        True,
    ),
    values=WORK,
)
site(
    "blackbox probes and pings with the machines' names",
    *each("dcgm", full, "{m}:9400"),
    *each("node", node, "{m}:9100"),
    *each("ping", lambda name: "probe_success 1\nprobe_duration_seconds 0.01\n", "{m}"),
    values=WORK,
)
