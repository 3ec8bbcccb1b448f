"""The page on uploads shows lengths that the wire still has."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MEASURED = ROOT / "benchmarks" / "measured"


def test_measured_lengths_are_those_of_the_wire(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import uploads

    small = json.loads(json.dumps(uploads.of_model("logistic_regression")))
    assert small == json.loads((MEASURED / "uploads.json").read_text())["models"][0]
    sys.modules.pop("uploads")


def test_what_the_page_says_in_words_is_what_the_tables_hold():
    models = {m["model"]: m for m in json.loads((MEASURED / "uploads.json").read_text())["models"]}
    large = {row["theta"]: row for row in models["alexnet"]["rows"]}
    assert large[0.005]["places"][0] / large[0.005]["paper"] > 2 / 3
    assert 0.265 < max(1 - row["golomb"] / row["topk"] for row in large.values()) < 0.275
    assert large[0.1]["topk then qsgd"] < 2 * large[0.1]["places"][0]  # more places than values
    kinds = {
        name: {row["theta"]: row["places"][1] for row in m["rows"]} for name, m in models.items()
    }
    # 1 / 22 lies between
    assert (kinds["alexnet"][0.01], kinds["alexnet"][0.05]) == ("list", "bitmap")
    # 1 / 13
    assert (kinds["logistic_regression"][0.05], kinds["logistic_regression"][0.1]) == (
        "list",
        "bitmap",
    )
    traffic = {
        row["method"]: row["mb"]
        for row in json.loads((MEASURED / "traffic.json").read_text())["fedcg-mnist"]["rows"]
    }
    joint = traffic["hetero_select"]
    dense = traffic["fedavg"]
    assert 0.18 < joint["paper"] / dense["paper"] < 0.22
    assert 4.7 < joint["total"] / dense["total"] < 5.3
    for name in ("flexcom", "optrate"):
        assert 0.15 < traffic[name]["paper"] / dense["paper"] < 0.22
        assert 0.35 < 1 - traffic[name]["total"] / dense["total"] < 0.45
