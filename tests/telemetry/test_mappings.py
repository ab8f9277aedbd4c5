"""The mappings that come with minder: each exporter's page, as it is documented, becomes canonical metrics in base units.

Those of cases with whole pages (dcgm, node, amd, ascend, all_smi, gpud) are in tests/doctor/test_cases.py as well.
"""

from __future__ import annotations

import pytest

from minder.ingest.sources.exposition import parse_exposition
from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.mapping import default_mappings, load_mapping
from minder.ingest.sources.translate import RawSeries, Translator
from minder.model.metrics import find_metric

PAGES = {
    "dcgm1": (
        """dcgm_gpu_utilization{gpu="3",uuid="GPU-1"} 97
dcgm_power_usage{gpu="3",uuid="GPU-1"} 412.5
dcgm_gpu_temp{gpu="3",uuid="GPU-1"} 61
dcgm_sm_clock{gpu="3",uuid="GPU-1"} 1410
dcgm_memory_clock{gpu="3",uuid="GPU-1"} 1215
dcgm_fb_used{gpu="3",uuid="GPU-1"} 30000
dcgm_fb_free{gpu="3",uuid="GPU-1"} 10000
dcgm_mem_copy_utilization{gpu="3",uuid="GPU-1"} 40
""",
        "gpu3",
        {"gpu_duty_cycle_ratio": 0.97, "gpu_power_draw_watts": 412.5, "gpu_temperature_celsius": 61.0, "gpu_clock_hertz": 1.41e9,
         "gpu_memory_used_ratio": 0.75},
    ),
    "nvidia_gpu_exporter": (
        """nvidia_smi_utilization_gpu_ratio{uuid="u1"} 0.5
nvidia_smi_utilization_memory_ratio{uuid="u1"} 0.25
nvidia_smi_power_draw_watts{uuid="u1"} 300
nvidia_smi_power_default_limit_watts{uuid="u1"} 400
nvidia_smi_temperature_gpu{uuid="u1"} 55
nvidia_smi_clocks_current_sm_clock_hz{uuid="u1"} 1.98e9
nvidia_smi_clocks_current_memory_clock_hz{uuid="u1"} 2.6e9
nvidia_smi_memory_used_bytes{uuid="u1"} 40
nvidia_smi_memory_total_bytes{uuid="u1"} 80
nvidia_smi_pcie_link_width_current{uuid="u1"} 16
""",
        "u1",
        {"gpu_duty_cycle_ratio": 0.5, "gpu_memory_bandwidth_ratio": 0.25, "gpu_power_draw_watts": 300.0, "gpu_temperature_celsius": 55.0,
         "gpu_clock_hertz": 1.98e9, "gpu_memory_used_ratio": 0.5, "pcie_link_width": 16.0},
    ),
    "gaudi": (
        """habanalabs_utilization{UUID="x",device="hl0",id="0"} 80
habanalabs_power_mW{UUID="x",device="hl0",id="0"} 450000
habanalabs_power_default_limit_mW{UUID="x",device="hl0",id="0"} 600000
habanalabs_temperature_onchip{UUID="x",device="hl0",id="0"} 50
habanalabs_temperature_onboard{UUID="x",device="hl0",id="0"} 30
habanalabs_clock_soc_mhz{UUID="x",device="hl0",id="0"} 1600
habanalabs_clock_soc_max_mhz{UUID="x",device="hl0",id="0"} 1700
habanalabs_memory_used_bytes{UUID="x",device="hl0",id="0"} 50
habanalabs_memory_total_bytes{UUID="x",device="hl0",id="0"} 100
""",
        "hl0",
        {"gpu_duty_cycle_ratio": 0.8, "gpu_power_draw_watts": 450.0, "gpu_temperature_celsius": 50.0, "gpu_clock_hertz": 1.6e9,
         "gpu_memory_used_ratio": 0.5},
    ),
    "tpu": (
        """duty_cycle{accelerator_id="4-0",container="c",make="tpu",pod="p"} 93
duty_cycle_node{accelerator_id="4-0",make="tpu",model="v5"} 93
tensorcore_utilization_node{accelerator_id="4-0",make="tpu",model="v5"} 60
memory_used_node{accelerator_id="4-0",make="tpu",model="v5"} 8
memory_total_node{accelerator_id="4-0",make="tpu",model="v5"} 16
""",
        "4-0",
        {"gpu_duty_cycle_ratio": 0.93, "gpu_tensor_activity_ratio": 0.6, "gpu_memory_used_ratio": 0.5},
    ),
    "telegraf": (
        """nvidia_smi_utilization_gpu{host="n1",index="1",uuid="u"} 88
nvidia_smi_power_draw{host="n1",index="1",uuid="u"} 350
nvidia_smi_temperature_gpu{host="n1",index="1",uuid="u"} 64
nvidia_smi_clocks_current_sm{host="n1",index="1",uuid="u"} 1755
nvidia_smi_memory_used{host="n1",index="1",uuid="u"} 40
nvidia_smi_memory_total{host="n1",index="1",uuid="u"} 80
cpu_usage_idle{cpu="cpu-total",host="n1"} 75
cpu_usage_idle{cpu="cpu0",host="n1"} 5
mem_used_percent{host="n1"} 40
disk_used_percent{host="n1",path="/"} 60
""",
        "gpu1",
        {"gpu_duty_cycle_ratio": 0.88, "gpu_power_draw_watts": 350.0, "gpu_temperature_celsius": 64.0, "gpu_clock_hertz": 1.755e9,
         "gpu_memory_used_ratio": 0.5, "cpu_usage_ratio": 0.25, "memory_usage_ratio": 0.4, "disk_usage_ratio": 0.6},
    ),
    "otel": (
        """hw_gpu_utilization_ratio{hw_id="GPU-a",hw_gpu_task="general"} 0.9
hw_gpu_utilization_ratio{hw_id="GPU-a",hw_gpu_task="decoder"} 0.1
hw_power_watts{hw_id="GPU-a",hw_type="gpu"} 600
hw_power_watts{hw_id="psu0",hw_type="power_supply"} 5000
hw_temperature_celsius{hw_id="GPU-a",hw_type="gpu"} 61
hw_gpu_memory_usage_bytes{hw_id="GPU-a"} 40
hw_gpu_memory_limit_bytes{hw_id="GPU-a"} 80
system_memory_usage_bytes{state="used"} 60
system_memory_usage_bytes{state="free"} 40
""",
        "GPU-a",
        {"gpu_duty_cycle_ratio": 0.9, "gpu_power_draw_watts": 600.0, "gpu_temperature_celsius": 61.0, "gpu_memory_used_ratio": 0.5,
         "memory_usage_ratio": 0.6},
    ),
    "xpum": (
        """xpum_engine_ratio{dev_file="card1",uuid="u"} 93
xpum_power_watts{dev_file="card1",uuid="u"} 500
xpum_temperature_celsius{dev_file="card1",location="gpu",uuid="u"} 60
xpum_temperature_celsius{dev_file="card1",location="memory",uuid="u"} 75
xpum_frequency_mhz{dev_file="card1",location="gpu",type="actual",uuid="u"} 1550
xpum_frequency_mhz{dev_file="card1",location="gpu",type="request",uuid="u"} 1600
xpum_memory_ratio{dev_file="card1",uuid="u"} 50
""",
        "card1",
        {"gpu_duty_cycle_ratio": 0.93, "gpu_power_draw_watts": 500.0, "gpu_temperature_celsius": 60.0, "gpu_clock_hertz": 1.55e9,
         "gpu_memory_used_ratio": 0.5},
    ),
    "neuron": (
        """neuroncore_utilization_ratio{neuroncore="3",runtime_tag="1"} 0.93
system_vcpu_usage_ratio{usage_type="user"} 0.25
system_vcpu_usage_ratio{usage_type="idle"} 0.75
system_memory_used_bytes 40
system_memory_total_bytes 80
""",
        "nc3",
        {"gpu_duty_cycle_ratio": 0.93, "cpu_usage_ratio": 0.25, "memory_usage_ratio": 0.5},
    ),
}  # fmt: skip


def read(mapping: str, page: str) -> tuple[dict[str, float], set[str]]:
    """Metrics and devices that a page gives."""
    found = [RawSeries(name, {**labels, "instance": "n1:1"}, ((10.0, value),)) for name, labels, value in parse_exposition(page)]
    samples = Translator(load_mapping(mapping), MachineMap("instance")).translate(found)
    return {name: value for sample in samples for name, value in sample.values.items()}, {
        sample.device for sample in samples if sample.device
    }


@pytest.mark.parametrize("mapping", sorted(PAGES))
def test_a_page_becomes_canonical_metrics_in_base_units(mapping: str) -> None:
    page, device, expected = PAGES[mapping]
    values, devices = read(mapping, page)
    assert values == pytest.approx(expected) and devices == {device}


@pytest.mark.parametrize("mapping", sorted(PAGES))
def test_a_page_is_read_the_same_by_all_mappings_at_once(mapping: str) -> None:
    """No mapping reads another exporter's series as something else."""
    page, _, expected = PAGES[mapping]
    together = "+".join([mapping, *(name for name in default_mappings() if name != mapping)])
    values, _ = read(together, page)
    assert values == pytest.approx(expected)


@pytest.mark.parametrize("mapping", default_mappings())
def test_every_rule_is_within_the_catalogue_and_percents_become_ratios(mapping: str) -> None:
    for rule in load_mapping(mapping).all_rules():
        metric = find_metric(rule.metric)
        assert metric is not None
        if rule.scale == 0.01:
            assert metric.unit == "ratio"
        if rule.metric.startswith("gpu_") and not rule.metric.endswith("_code"):
            assert rule.device is not None, f"{mapping}: {rule.metric}"
