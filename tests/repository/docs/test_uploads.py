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
    page = (ROOT / "docs" / "upload-cost.md").read_text(encoding="utf-8")
    models = {m["model"]: m for m in json.loads((MEASURED / "uploads.json").read_text())["models"]}
    large = {row["theta"]: row for row in models["alexnet"]["rows"]}
    assert "at 0.5 % of AlexNet's values, places cost more than two thirds" in page
    assert large[0.005]["places"][0] / large[0.005]["paper"] > 2 / 3
    saved = max(1 - row["golomb"] / row["topk"] for row in large.values())
    assert f"would save at most {100 * saved:.0f} % of AlexNet's messages" in page
    assert "quantized to 8 bits, a share of 10 % of AlexNet is more places than values" in page
    assert large[0.1]["topk then qsgd"] < 2 * large[0.1]["places"][0]
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
    up, total = (
        {name: f"{mb[what]:.1f}" for name, mb in traffic.items()} for what in ("up", "total")
    )
    assert (
        f"it sends up {up['hetero_select']} MB where FedAvg sends {up['fedavg']} MB, and "
        f"{total['hetero_select']} MB travel in all, where FedAvg's are {total['fedavg']} MB"
        in page
    )
    assert (
        f"send up {up['flexcom']} and {up['optrate']} MB, and {total['flexcom']} and "
        f"{total['optrate']} MB travel in all" in page
    )
