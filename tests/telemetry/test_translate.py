"""From exported series to samples: names, units, machines, counters, blanks."""

from __future__ import annotations

import pytest

from minder.ingest.sources.identity import Join, MachineMap
from minder.ingest.sources.mapping import MetricMapping, default_mappings, load_mapping
from minder.ingest.sources.translate import RawSeries, Translator
from minder.model.errors import ConfigError, IdentityError
from minder.model.metrics import CATALOGUE

T0 = 1000.0


def series(name, *points, machine="m0", instance=None, **labels):
    labels = {"machine": machine, "instance": instance or f"{machine}:9400", **labels}
    return RawSeries(name, labels, [(T0 + offset, value) for offset, value in points])


def translate(mapping, *found, known=()):
    return Translator(load_mapping(mapping), MachineMap(known=known)).translate(found)


def values(samples, metric):
    return [(s.time_s - T0, s.device, s.values[metric]) for s in samples if metric in s.values]


def test_gauges_and_totals_of_our_own_exporter_keep_their_name_and_time():
    samples = translate("minder", series("minder_cpu_usage_ratio", (0, 0.5), (1, 0.6)), series("minder_steps_total", (0, 7), (1, 3)))
    assert values(samples, "cpu_usage_ratio") == [(0, None, 0.5), (1, None, 0.6)]
    assert values(samples, "steps_total") == [(0, None, 7.0), (1, None, 3.0)]


def test_every_catalogue_metric_of_our_own_exporter_has_a_way_in():
    for metric in CATALOGUE:
        rules = [rule for rule in load_mapping("minder").all_rules() if rule.metric == metric.name]
        assert rules, metric.name
    assert "minder_tcp_retransmits_total" in load_mapping("minder").name_pattern().split("|")


def test_a_counter_becomes_its_growth_per_second():
    samples = translate("minder", series("minder_tcp_retransmits_total", (0, 100), (2, 110), (3, 110)))
    assert values(samples, "tcp_retransmits_per_second") == [(2, None, 5.0), (3, None, 0.0)]


def test_a_reset_is_no_data_and_not_a_negative_rate():
    samples = translate("minder", series("minder_tcp_retransmits_total", (0, 100), (1, 110), (2, 3), (3, 5)))
    assert values(samples, "tcp_retransmits_per_second") == [(1, None, 10.0), (3, None, 2.0)]


@pytest.mark.parametrize("top", [255, 65535, 4294967295])
def test_a_saturated_hardware_counter_is_no_data(top):
    found = series(
        "node_infiniband_symbol_error_total", (0, top - 50), (1, top - 40), (2, top), (3, top), (4, 0), (5, 8), device="mlx5_0", port="1"
    )
    assert values(translate("node", found), "link_errors_per_second") == [(1, "mlx5_0", 10.0), (5, "mlx5_0", 8.0)]


def test_growth_over_an_outage_is_no_rate():
    samples = translate("minder", series("minder_tcp_retransmits_total", (0, 100), (400, 1100), (401, 1101)))
    assert values(samples, "tcp_retransmits_per_second") == [(401, None, 1.0)]


def test_directions_are_summed_per_device():
    found = [
        series(f"minder_tcp_{way}_bytes_total", (0, 0), (1, amount), device=device)
        for way, amount, device in [("receive", 10, "eth0"), ("transmit", 5, "eth0"), ("receive", 100, "eth1"), ("transmit", 50, "eth1")]
    ]
    assert values(translate("minder", *found), "tcp_throughput_bytes_per_second") == [(1, "eth0", 15.0), (1, "eth1", 150.0)]


def test_half_a_sum_is_no_data():
    found = [
        series("minder_tcp_receive_bytes_total", (0, 0), (1, 10), (2, 20), (3, 30), device="eth0"),
        series("minder_tcp_transmit_bytes_total", (0, 0), (1, 10), (3, 30), device="eth0"),
    ]
    assert values(translate("minder", *found), "tcp_throughput_bytes_per_second") == [(1, "eth0", 20.0), (3, "eth0", 20.0)]


@pytest.mark.parametrize("blank", [9223372036854775794.0, 2147483632.0, 140737488355328.0, float("nan"), float("inf")])
def test_blanks_are_no_data(blank):
    samples = translate("dcgm", series("DCGM_FI_DEV_POWER_USAGE", (0, 400.0), (1, blank), (2, 410.0), gpu="3"))
    assert values(samples, "gpu_power_draw_watts") == [(0, "gpu3", 400.0), (2, "gpu3", 410.0)]


def test_dcgm_units_become_base_units():
    found = [
        series(name, (0, value), gpu="0", Hostname="m0")
        for name, value in [
            ("DCGM_FI_DEV_GPU_UTIL", 87), ("DCGM_FI_DEV_SM_CLOCK", 1980), ("DCGM_FI_DEV_FB_USED", 60_000), ("DCGM_FI_DEV_FB_FREE", 20_000),
            ("DCGM_FI_PROF_NVLINK_TX_BYTES", 1e9), ("DCGM_FI_PROF_NVLINK_RX_BYTES", 2e9),
        ]
    ]  # fmt: skip
    (sample,) = translate("dcgm", *found)
    assert sample.device == "gpu0"
    assert sample.values == pytest.approx(
        {"gpu_duty_cycle_ratio": 0.87, "gpu_clock_hertz": 1.98e9, "gpu_memory_used_ratio": 0.75, "nvlink_bandwidth_bytes_per_second": 3e9}
    )


def test_cpu_usage_of_node_exporter_is_what_was_not_idle():
    modes = {"idle": (0.0, 3.0), "user": (10.0, 15.0), "system": (5.0, 7.0), "guest": (1.0, 4.0)}
    found = [series("node_cpu_seconds_total", (0, a), (5, b), cpu=cpu, mode=mode) for mode, (a, b) in modes.items() for cpu in "01"]
    assert values(translate("node", *found), "cpu_usage_ratio") == [(5, None, pytest.approx(0.7))]


def test_a_point_comes_out_once():
    translator = Translator(load_mapping("minder"), MachineMap())
    first = translator.translate([series("minder_cpu_usage_ratio", (0, 0.1), (1, 0.2))])
    again = translator.translate([series("minder_cpu_usage_ratio", (0, 0.1), (1, 0.2), (2, 0.3))])
    assert [s.time_s - T0 for s in first] == [0, 1] and [s.time_s - T0 for s in again] == [2]


def test_a_machine_that_answers_without_known_values_was_heard():
    (sample,) = translate("minder", series("minder_tcp_retransmits_total", (0, 5)))
    assert sample.machine == "m0" and sample.values == {}


def test_the_first_of_two_ways_to_a_metric_wins():
    found = [series("minder_cpu_usage_ratio", (0, 0.5)), series("node_cpu_seconds_total", (0, 1), (0.5, 2), mode="user")]
    assert values(translate("minder+node", *found), "cpu_usage_ratio") == [(0, None, 0.5)]


def test_a_target_without_a_machine_is_named_with_what_to_do():
    found = RawSeries("minder_cpu_usage_ratio", {"instance": "10.0.0.9:9400", "job": "minder"}, [(T0, 0.5)])
    with pytest.raises(IdentityError, match=r'10\.0\.0\.9:9400 of job "minder" has no label "machine".*machine_map'):
        translate("minder", found)


def test_two_targets_of_one_machine_are_an_error():
    found = [
        series("minder_cpu_usage_ratio", *((n + shift, 0.5) for n in range(4)), instance=f"{name}:1")
        for name, shift in (("x", 0), ("y", 0.4))
    ]
    with pytest.raises(IdentityError, match=r"x:1 and y:1 both map to machine m0|y:1 and x:1 both map to machine m0"):
        translate("minder", *found)


def test_a_target_that_moved_is_none():
    found = [
        series("minder_cpu_usage_ratio", (0, 0.1), (1, 0.2), instance="x:1"),
        series("minder_cpu_usage_ratio", (2, 0.3), (3, 0.4), instance="x:2"),
    ]
    assert len(translate("minder", *found)) == 4


def test_machines_of_other_jobs_are_left_aside_but_not_all_of_them():
    ours, theirs = series("minder_cpu_usage_ratio", (0, 0.5)), series("minder_cpu_usage_ratio", (0, 0.5), machine="z9")
    assert len(translate("minder", ours, theirs, known=["m0"])) == 1
    with pytest.raises(IdentityError, match="no target maps to a machine of the job; z9:9400"):
        translate("minder", theirs, known=["m0"])


@pytest.mark.parametrize(
    ("machines", "labels", "name"),
    [
        (MachineMap("instance"), {"instance": "m0:9400"}, "m0"),
        (MachineMap("instance", r"(.*)\.cluster:\d+"), {"instance": "m0.cluster:9400"}, "m0"),
        (MachineMap("Hostname", machines={"gpu-17": "m0"}), {"Hostname": "gpu-17", "instance": "1.2.3.4:9400"}, "m0"),
        (MachineMap("machine", machines={"1.2.3.4:9400": "m0"}), {"instance": "1.2.3.4:9400"}, "m0"),
        (MachineMap("instance", known=["m1"]), {"instance": "m0:9400"}, None),
    ],
)
def test_ways_to_name_a_machine(machines, labels, name):
    assert machines.resolve(labels) == name


BY_NODENAME = (Join("node_uname_info", (("instance", "instance"),), "nodename"),)


def uname(nodename, time_s, instance="10.0.0.1:9100"):
    return ("node_uname_info", {"instance": instance, "nodename": nodename}, time_s)


def test_a_series_without_the_label_finds_its_machine_in_another_metric():
    machines = MachineMap("Hostname", joins=BY_NODENAME, short_names=True)
    machines.learn([uname("n1.cluster.local", 10.0)])
    assert machines.resolve({"instance": "10.0.0.1:9400"}) == "n1" == machines.resolve({"Hostname": "n1"})
    with pytest.raises(IdentityError, match="node_uname_info do not know it"):
        machines.resolve({"instance": "10.0.0.2:9400"})


def test_an_address_that_two_machines_answer_to_is_nobodys_until_one_is_gone():
    machines = MachineMap("Hostname", joins=BY_NODENAME)
    machines.learn([uname("n1", 10.0), uname("n2", 20.0)])
    with pytest.raises(IdentityError):
        machines.resolve({"instance": "10.0.0.1:1"})
    machines.learn([uname("n1", 10.0), uname("n2", 200.0)])
    assert machines.resolve({"instance": "10.0.0.1:1"}) == "n2"


def test_a_series_whose_machine_is_known_later_is_read_from_then_on():
    machines = MachineMap("machine", joins=BY_NODENAME)
    translator = Translator(load_mapping("minder"), machines)
    ours = series("minder_cpu_usage_ratio", (0, 0.5))
    late = series("minder_memory_usage_ratio", (0, 0.5), (1, 0.6), instance="10.0.0.1:9401", machine="")
    assert {sample.machine for sample in translator.translate([ours, late])} == {"m0"}
    assert translator.unplaced == {"10.0.0.1:9401": 1} and "no label" in translator.refusal
    machines.learn([uname("m7", 1.0)])
    assert {sample.machine for sample in translator.translate([ours, late])} == {"m7"} and translator.unplaced == {}


def test_scrapes_of_a_target_that_speaks_for_many_have_no_machine_unless_their_labels_name_it():
    translator = Translator(load_mapping("dcgm"), MachineMap("host"))
    target = {"instance": "localhost:9400", "job": "dcgm"}
    found = translator.translate([
        RawSeries("up", {**target, "host": "m1"}, ((10.0, 1.0),)), RawSeries("up", target, ((10.0, 0.0),)),
        *(RawSeries("DCGM_FI_DEV_GPU_TEMP", {**target, "host": name, "gpu": "0"}, ((10.0, 50.0),)) for name in ("m1", "m2")),
    ])  # fmt: skip
    assert [(sample.machine, sample.values["scrape_up"]) for sample in found if "scrape_up" in sample.values] == [("m1", 1.0)]


def test_a_name_that_does_not_match_the_pattern_is_an_error():
    with pytest.raises(IdentityError, match="does not match the pattern"):
        MachineMap("instance", r"gpu-\d+").resolve({"instance": "login-1"})


def test_the_default_mappings_load():
    assert {"dcgm", "minder", "node"} < set(default_mappings())
    for name in default_mappings():
        assert isinstance(load_mapping(name), MetricMapping)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('colour = "red"', "colour"),
        ('[[rule]]\nmetric = "speed"\nseries = ["x"]', "not in the metric catalogue"),
        ('[[rule]]\nmetric = "cpu_usage_ratio"\nseries = ["("]', "no regular expression"),
        ('[[rule]]\nmetric = "cpu_usage_ratio"\nseries = ["x"]\nkind = "guess"', "kind"),
        ("[[rule", "no TOML"),
    ],
)
def test_a_mapping_with_mistakes_is_refused(tmp_path, text, words):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_mapping(str(path))


def test_a_mapping_that_is_not_there_names_the_defaults():
    with pytest.raises(ConfigError, match="dcgm, dcgm1, gaudi"):
        load_mapping("nowhere.toml")


def test_stamps_that_are_set_back_are_read_on_and_a_little_older_ones_are_not():
    translator = Translator(load_mapping("minder"), MachineMap())
    name = "minder_tcp_retransmits_total"
    assert len(translator.translate([series(name, (0, 100), (1, 110))])) == 2
    assert translator.translate([series(name, (-5, 80), (0, 100))]) == []  # another replica of the same Prometheus, say
    back = translator.translate([series(name, (-3600, 120), (-3599, 130))])
    assert values(back, "tcp_retransmits_per_second") == [(-3599, None, 10.0)]
