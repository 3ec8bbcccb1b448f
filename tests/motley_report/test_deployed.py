"""What a report says of real clients: which time is meant, how long they took, what travelled, who
was lost and why."""

import numpy as np
import pytest

from motley.results import labels
from motley.results.terminal import terminal_tables
from motley_report import deployed
from motley_report.report import facts, report, warnings
from motley_report.sections import all_sections
from tests.motley.results.fake import run, table, two_rounds


def test_a_client_s_row_adds_up():
    """Client 0: two accepted answers of 13 and 36 s, so 24.5 in the median, of which 20 at work; 2
    MB down, 1 MB up."""
    rows = {
        row.label: [cell.text for cell in row.cells] for row in deployed.clients(two_rounds()).rows
    }
    assert rows["client 0"] == [
        "2",
        "2",
        "0",
        "0",
        "0",
        "0",
        "24.50",
        "20.00",
        "4.50",
        "2.00",
        "1.00",
        "2",
    ]
    assert rows["client 1"] == [
        "2",
        "1",
        "1",
        "1",
        "0",
        "0",
        "56.00",
        "50.00",
        "6.00",
        "2.00",
        "0.500",
        "1",
    ]
    assert rows["client 2"] == ["1", "0", "0", "0", "1", "0", "–", "–", "–", "1.00", "0.00", "–"]
    assert rows["client 3"][:6] == ["0"] * 6


def test_who_was_lost_is_listed_newest_first_and_uploads_after_a_deadline_are_not():
    rows = [
        (row.label, *(cell.text for cell in row.cells))
        for row in deployed.incidents(two_rounds()).rows
    ]
    assert rows == [
        ("client 2", "connected", "its node is connected", "2", "186", "2026-01-02T03:04:05Z"),
        ("client 2", "lost", "no <answer> within 60 s", "1", "70", "2026-01-02T03:04:05Z"),
    ]


def test_of_many_clients_those_with_most_trouble_are_shown(monkeypatch):
    monkeypatch.setattr(deployed, "MOST", 2)
    shown = deployed.clients(two_rounds())
    assert [row.label for row in shown.rows] == ["client 1", "client 2"]
    assert "Of 4 clients the 2 with most uploads that were not used are shown." in shown.note
    many = two_rounds(
        incidents=table(
            "incidents",
            round=[1, 1, 1],
            time_s=[1.0, 2.0, 3.0],
            client=[0, 1, 2],
            event=["lost"] * 3,
        )
    )
    assert [row.label for row in deployed.incidents(many).rows] == ["client 2", "client 1"]
    assert "The last 2 of 3" in deployed.incidents(many).note


@pytest.mark.usefixtures("drawn")
def test_the_report_has_durations_traffic_and_losses_and_says_wall_time(tmp_path):
    page = report([two_rounds()], tmp_path / "report.html").read_text()
    for text in (
        "How the clients did",
        "What went wrong",
        "no &lt;answer&gt; within 60 s",
        "wall hours",
        "Wall time is the server",
        "an upload was lost once (client 2); when and why is below.",
        "real clients",
    ):
        assert text in page, text
    assert "irtual" not in page
    assert "one seed only" not in page
    for name in ("durations", "round-traffic", "curve-seconds"):
        assert f'id="{name}-' in page


def test_seconds_of_a_round_run_from_its_start():
    assert deployed._seconds(two_rounds()).y.tolist() == [120.0, 60.0]
    assert deployed._bits("down_bits", "probe_down_bits")(two_rounds()).y.tolist() == [24e6, 16e6]


def test_a_deployment_beside_a_simulation_is_a_method_of_its_own():
    simulated = run(**two_rounds().tables)
    groups = labels.group_runs([simulated, two_rounds()])
    assert list(groups) == ["by hand", "by hand (deployed)"]
    assert labels.clock(groups) == "virtual or wall"
    assert "virtual or wall h" in [
        column.header for column in terminal_tables([simulated, two_rounds()])[0].columns
    ]
    assert dict(facts(groups))["deployment"] == "simulated, and real clients"
    assert "one seed only" in " ".join(warnings(groups))
    assert [part.title for part in all_sections({"simulated": [simulated]})].count(
        "How the clients did"
    ) == 0


def test_nothing_went_wrong_is_said():
    quiet = two_rounds(incidents=table("incidents", round=[]))
    assert (
        "No client was lost"
        in deployed.real_clients({"a": [quiet]}).blocks[-1].blocks[-1].blocks[0].text
    )
    nobody = two_rounds(clients=table("clients", round=[]))
    assert deployed.clients(nobody) is None
    assert np.isfinite(deployed._seconds(nobody).y).all()
