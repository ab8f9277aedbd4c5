from __future__ import annotations

from minder.diagnose.verdicts.telemetry import calibrated, is_of_network, log_odds


def test_a_group_is_surer_than_one_machine_and_both_than_a_sign_of_the_network() -> None:
    one, several, network = (calibrated(log_odds(*shown, 0)) for shown in ((False, False), (False, True), (True, False)))
    assert network < one < several <= 0.99
    assert is_of_network("rdma_throughput_bytes_per_second") and is_of_network("link_errors_per_second")
    assert not is_of_network("gpu_power_draw_watts") and not is_of_network(None)


def test_confidence_falls_with_company() -> None:
    assert calibrated(log_odds(False, False, 2)) < calibrated(log_odds(False, False, 1)) < calibrated(log_odds(False, False, 0))


def test_an_accusation_that_stands_is_surer() -> None:
    for network in (False, True):
        odds = [log_odds(network, False, 0, 60.0 * minutes) for minutes in (0, 2, 10, 60)]
        assert sorted(set(odds)) == odds
