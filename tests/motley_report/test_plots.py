"""Figures are deterministic, never clash in one page, and say what they show."""

import io
import re
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from motley.core.errors import ConfigError
from motley.results import measures
from motley.results.load import Run, read_table
from motley.results.schema import TABLES
from motley_report import plots
from motley_report.figures import (
    _NO_DATES,
    CLIENT_GROUPS,
    ONE_BY_ONE,
    client_groups,
    group_edges,
    new_figure,
    spread_apart,
    styled,
)
from motley_report.figures import (
    draw as draw_figure,
)
from motley_report.selection_plots import class_distribution
from tests.motley.results import fake

pytestmark = pytest.mark.usefixtures("drawn")


def loaded(directory, selector, seed, **options):
    path = fake.write(directory, selector, seed, rounds=12, **options)
    info = fake.meta(selector, seed)
    return Run(path, info, {name: read_table(path, name) for name in TABLES})


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return {s: [loaded(root / f"{s}{k}", s, k) for k in (0, 1)] for s in fake.METHODS}


def every(groups):
    first = next(iter(groups.values()))[0]
    axes = [plots.curves(groups, axis) for axis in ("round", "seconds", "bits", "paper_bits")]
    rest = [
        plots.headline_bars(groups),
        plots.participation_bars(groups),
        plots.client_curves(groups),
    ]
    return [picture.svg for picture in (*axes, *rest, class_distribution(first))]


@pytest.fixture(scope="module")
def figures(groups):
    return every(groups)


def test_the_same_bytes_twice_and_ids_that_never_clash(groups, figures):
    assert figures == every(groups)
    ids = [name for svg in figures for name in set(re.findall(r'\bid="([^"]+)"', svg))]
    assert len(ids) == len(set(ids))
    for svg in figures:
        own = set(re.findall(r'\bid="([^"]+)"', svg))
        assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg)) <= {
            (i, "") for i in own
        } | {("", i) for i in own}
        assert svg.startswith('<svg role="img" aria-label="')
        assert "metadata" not in svg


def test_every_method_can_be_hidden(figures):
    for svg in figures[:-1]:
        assert {f"method-{i}" for i in range(3)} == set(re.findall(r'class="(method-\d+)[ "]', svg))


def test_empty_runs_are_drawn_empty():
    groups = {"nothing": [fake.run()]}
    assert plots.curves(groups, "round").svg.startswith("<svg")
    assert plots.headline_bars(groups).svg.startswith("<svg")
    assert plots.participation_bars(groups).svg.startswith("<svg")
    assert plots.client_curves(groups) is None
    assert class_distribution(groups["nothing"][0]) is None


def test_many_methods_and_many_clients(groups):
    many = {f"method {i}": groups["uniform"] for i in range(12)}
    assert len(set(re.findall(r'class="(method-\d+)[ "]', plots.curves(many, "round").svg))) == 12
    assert len(set(re.findall(r'class="(method-\d+)"', plots.headline_bars(many).svg))) == 12
    labels = np.eye(100, dtype=int).tolist()
    federation = fake.table("federation", client=list(range(100)), labels=labels)
    assert "<image" in class_distribution(fake.run(federation=federation)).svg


LONG = "lr 0.0125, scaffold with momentum, power_of_choice {}, dirichlet 0.1"


def names_inside(picture):
    """Return the names of methods in a picture; none reaches out of it."""
    figure = picture.figure
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    names = [text for text in figure.findobj(Text) if "scaffold" in text.get_text()]
    for name in names:
        box = name.get_window_extent(renderer)
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width
        assert 0 <= box.y0 < box.y1 <= figure.bbox.height
    return [" ".join(name.get_text().split()) for name in names]


@pytest.mark.parametrize(
    ("methods", "draw"),
    [
        (4, plots.headline_bars),
        (4, plots.client_curves),
        (8, plots.client_curves),
        (8, plots.headline_bars),
    ],
)
def test_long_names_are_written_whole_and_inside_the_picture(groups, methods, draw):
    named = {LONG.format(i): groups["uniform"][:1] for i in range(methods)}
    assert set(names_inside(draw(named))) == set(named)


def test_names_of_small_panels_keep_their_ends(groups):
    named = {LONG.format(i): groups["uniform"][:1] for i in range(8)}
    names = names_inside(plots.participation_bars(named))
    assert len(set(names)) == 8
    assert names[0].startswith("lr 0.0125, scaffold")
    assert names[0].endswith("dirichlet 0.1")


def test_only_methods_with_a_line_are_in_a_legend(groups, monkeypatch):
    line = measures.Curve(np.array([1.0, 2.0]), np.array([0.5, 0.25]))
    nothing = measures.Curve(np.empty(0), np.empty(0))
    monkeypatch.setattr(
        measures,
        "concentration",
        lambda run: line if run in groups["power_of_choice"] else nothing,
    )
    many = {f"{name} {i}": groups[name] for i in range(3) for name in groups}
    legend = plots.concentration(many).figure.legends[0]
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["power_of_choice 0", "power_of_choice 1", "power_of_choice 2"]


def test_rounds_are_whole_numbers(groups):
    axes = plots.curves(groups, "round").figure.axes[0]
    axes.set_xlim(0, 3)
    assert axes.get_xticks().tolist() == [0, 1, 2, 3]


def test_an_inset_shows_the_last_fifth_of_the_rounds(groups):
    """Of 12 rounds those from 9.6 on; each method's line in its own colour."""
    axes = plots.curves(groups, "round", inset=True).figure.axes[0]
    (inner,) = axes.child_axes
    whole = [line for line in axes.lines if len(line.get_xdata()) > 2][: len(groups)]
    assert len(inner.lines) == len(groups)
    for line, long in zip(inner.lines, whole, strict=True):
        x, y = (np.asarray(values) for values in long.get_data())
        assert x[x >= 9.6].tolist() == line.get_xdata().tolist() != []
        assert y[x >= 9.6].tolist() == line.get_ydata().tolist()
        assert line.get_color() == long.get_color()
    assert not plots.curves(groups, "round").figure.axes[0].child_axes


def test_more_clients_than_are_drawn_one_by_one_are_means_of_equal_groups():
    # 2,001 clients in 500 groups: group g holds the ranks from floor(4.002 g) to below floor(4.002
    # (g + 1)), so the first is 0, 1, 2, 3 (mean 1.5), and the last begins at floor(1996.998) = 1996
    # and holds 1996 .. 2000 (mean 1998)
    edges = group_edges(2001)
    means = client_groups(np.arange(2001.0))
    assert (len(edges), len(means), edges[0], edges[1], edges[-2], edges[-1]) == (
        501,
        500,
        0,
        4,
        1996,
        2001,
    )
    assert (means[0], means[-1]) == (1.5, 1998.0)
    pairs = np.arange(500.0)[:, None].repeat(2, axis=1)
    np.testing.assert_array_equal(client_groups(pairs.repeat(6, axis=0)), pairs)
    few = np.arange(float(ONE_BY_ONE))
    np.testing.assert_array_equal(client_groups(few), few)
    np.testing.assert_array_equal(group_edges(3), [0, 1, 2, 3])
    np.testing.assert_array_equal(group_edges(0), [0])


def a_large_run(clients):
    """Every second client evaluated right in half of its samples, a tenth with wrong labels, three
    accepted."""
    ids = np.arange(clients)
    federation = fake.table(
        "federation",
        client=ids,
        labels=np.eye(10, dtype=int)[ids % 10].tolist(),
        noise=(ids % 10 == 0) * 0.5,
    )
    seen = fake.table("clients", client=[7, 8, 7], outcome=["accepted"] * 3, round=[1, 1, 2])
    evaluations = fake.table(
        "evaluations",
        client=[-1, *ids],
        scope=["mean", *["client"] * clients],
        accuracy=[0.5, *(ids % 2)],
        round=[2] * (clients + 1),
    )
    return fake.run(federation=federation, clients=seen, evaluations=evaluations)


def test_pictures_of_many_clients_have_a_limit_and_say_that_they_draw_means():
    many = a_large_run(20 * ONE_BY_ONE)
    for draw in (
        plots.participation_bars,
        plots.client_curves,
        lambda groups: class_distribution(groups["many"][0]),
    ):
        picture = draw({"many": [many]})
        assert len(picture.svg) < 300_000
        assert f"drawn as {CLIENT_GROUPS} equal parts, each by its mean" in picture.svg
        one_by_one = draw({"many": [a_large_run(30)]})
        assert "equal parts" not in one_by_one.svg


def test_one_report_compares_one_metric():
    with pytest.raises(ConfigError, match="compared in one metric, got accuracy, loss"):
        plots.headline_bars({"a": [fake.run(task={"metric": "loss"})], "b": [fake.run()]})


def test_labels_are_spread_apart():
    assert spread_apart([1.0, 5.0], 1.0) == [1.0, 5.0]
    assert spread_apart([2.0, 2.0, 9.0], 1.0) == [1.5, 2.5, 9.0]
    heights = sorted(spread_apart([0.0, 0.1, 0.2, 1.0], 0.5))
    assert all(b - a >= 0.5 - 1e-12 for a, b in pairwise(heights))


def test_the_first_rise_is_cut_off_only_where_it_would_hide_the_rest():
    """Of 20 evaluations the last 18 lie from 0.88 to 0.92, the first at 0.1: shown is 0.88 - 0.6 *
    0.04 to 0.92 + 0.15 * 0.04."""

    def limits(means, better=True):
        axes = Figure().add_subplot()
        axes.plot(means)
        before = axes.get_ylim()
        plots._show_where_they_differ(axes, [np.array(means)], better)
        return None if axes.get_ylim() == before else axes.get_ylim()

    rise = [0.1, 0.5, *np.linspace(0.88, 0.92, 18)]
    assert limits(rise) == pytest.approx((0.856, 0.926))
    assert limits([1 - v for v in rise], better=False) == pytest.approx((0.074, 0.144))
    # of few, the untrained model alone
    assert limits([0.1, 0.88, 0.89, 0.9, 0.92]) == pytest.approx((0.856, 0.926))
    assert limits(np.linspace(0.1, 0.9, 20)) is None
    assert limits([0.1, 0.9]) is None
    assert limits([0.5] * 20) is None


@pytest.mark.parametrize(("apart", "bands"), [(0.02, 1), (0.03, 0)])
def test_a_band_that_would_fill_the_picture_is_left_out_and_said(monkeypatch, apart, bands):
    """Two seeds, each ``apart`` from their mean: the band is 2 * sqrt(2) * apart high, 0.057 or
    0.085; the range shown is 0.07."""

    def of(shift):
        rows = {"round": range(20), "scope": ["global"] * 20, "client": [-1] * 20}
        values = np.array([0.1, 0.5, *np.linspace(0.88, 0.92, 18)]) + shift
        return fake.run(evaluations=fake.table("evaluations", **rows, accuracy=values))

    figures = []
    monkeypatch.setattr(plots, "to_svg", lambda figure, name, about: figures.append(figure))
    plots.curves({"a": [of(apart), of(-apart)]}, "round")
    (axes,) = figures[0].axes
    assert len(axes.collections) == bands
    assert axes.get_title("left").endswith("(seeds differ by more than this range)") == (bands == 0)


def test_traffic_of_other_orders_of_magnitude_is_logarithmic():
    def of(bits):
        rows = {
            "round": [0, 1, 2],
            "scope": ["global"] * 3,
            "client": [-1] * 3,
            "accuracy": [0.1, 0.5, 0.9],
        }
        table = fake.table("evaluations", **rows, total_bits=[0.0, bits / 2, bits])
        return [fake.run(evaluations=table)]

    said = {
        factor: plots.curves({"a": of(8e6), "b": of(factor * 8e6)}, "bits").about
        for factor in (3, 5)
    }
    assert "logarithmic" in said[5]
    assert "logarithmic" not in said[3]
    assert "logarithmic" not in plots.curves({"a": of(8e6), "b": of(0.0)}, "bits").about


@pytest.mark.parametrize("kind", ["svg", "pdf"])
def test_a_figure_is_drawn_once_as_savefig_draws_it_twice(kind):
    """Laid out, without a ground also where axes lie in axes, and at the resolution that it had."""

    def made() -> Figure:
        figure = new_figure(4.0, 3.0)
        axes = figure.subplots()
        axes.set(title="a title", xlabel="rounds", ylabel="accuracy")
        axes.imshow(np.arange(12.0).reshape(3, 4))
        axes.inset_axes((0.5, 0.5, 0.4, 0.4)).plot([0, 1], [2, 3])
        return figure

    saved = io.BytesIO()
    with styled():
        figure = made()
        drawn = draw_figure(figure, kind)
        metadata = _NO_DATES[kind]
        made().savefig(saved, format=kind, transparent=True, metadata=metadata)
    assert drawn == saved.getvalue()
    assert figure.dpi == 100


def test_ends_of_a_method_with_a_ruined_seed_are_not_drawn(groups):
    """As in the table, only its best value is: the other seed would flatter it."""
    nan = float("nan")
    runs = {
        "fedavg": [fake.of_losses([2.0, 0.5, 0.4], [0.4] * 4, seed=seed) for seed in (0, 1)],
        "ditto": [
            fake.of_losses([2.0, 0.5, 0.3], [0.3] * 4, seed=0),
            fake.of_losses([2.0, 0.5, nan], [0.3] * 3 + [nan], seed=1),
        ],
    }
    bars = plots.headline_bars(runs).svg
    assert "<title>peak 0.400 ± 0.141</title>" in bars
    assert "<title>final 0.400 ± 0.000</title>" in bars
    assert "final 0.300" not in bars
    assert ">ditto</text>" not in plots.client_curves(runs).svg
    rows = plots.headline_bars({f"{name} {i}": runs[name] for name in runs for i in range(4)}).svg
    assert "final 0.300" not in rows


def test_seeds_with_different_numbers_of_clients_meet_at_equal_shares():
    """Ten clients with a loss of .9 and five of .5: .7 everywhere, not .9 among the better half."""
    runs = [
        fake.of_losses([2.0, loss], [loss] * clients, seed=seed)
        for seed, (loss, clients) in enumerate(((0.9, 10), (0.5, 5)))
    ]
    (axes,) = plots.client_curves({"fedavg": runs}).figure.axes
    assert axes.lines[0].get_ydata() == pytest.approx([0.7] * 10)


def test_a_missed_target_is_drawn_with_all_that_was_spent():
    runs = [fake.of_losses([2.0, 0.5, *[float("nan")] * 8])]
    assert "more than 9.00" in plots.target_bars({"fedavg": runs}, 0.2).svg
