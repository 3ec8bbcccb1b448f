"""Figures stay small: paths worked out by hand, what is invisible is gone, and a bound on the bytes
of each figure."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from motley.results.blocks import Page
from motley_report import plots, selection_plots
from motley_report.figures import NARROW, PALETTE, mark, new_figure, styled, to_svg
from motley_report.page import html
from motley_report.svg import _path, compact
from tests.motley.results import fake

pytestmark = pytest.mark.usefixtures("drawn")


@pytest.mark.parametrize(
    ("long", "short"),
    [
        # ends 4.02 and 5.5 from the start
        ("M 10.04 20 L 12.06 20 L 14.06 20 L 14.06 25.5", "M10 20h4v5.5"),
        ("M 1 1 L 2 3 L 2 3.01 L 0.5 2.5", "M1 1l1 2l-1.5-.5"),  # a hundredth changes nothing
        ("M 5 5 L 9 5 L 7 5", "M5 5h4h-2"),  # back again: two lines
        # rounded from the start, so errors do not add up
        ("M 0 0 L 0.04 0 L 0.08 0 L 0.12 0", "M0 0h.1"),
        ("M 0 0 C 1 0 2 1 2 2 z", "M0 0c1 0 2 1 2 2z"),
        ("M 3 3 L 3 3", "M3 3h0"),  # a dot with round ends
    ],
)
def test_paths_are_short_and_where_they_were(long, short):
    assert _path(long, 10) == short


def test_what_is_invisible_goes_and_ids_are_those_referred_to():
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'viewBox="0 0 9 9"><metadata/><g id="a"><path d="M 0 0 L 9 9" style="fill: none"/><g '
        'id="method-1 line|final 3 &amp; 4"><path d="M 1 1 L 2 2" clip-path="url(#p1)" '
        'style="fill: none; stroke: #0072b2; stroke-width: 1.0"/></g></g><g '
        'id="empty"/><defs><clipPath id="p1"><rect x="0.123" y="1" width="5" '
        'height="5"/></clipPath></defs></svg>'
    )
    assert compact(svg, "n", {"role": "img"}).partition(">")[2] == (
        '<g class="method-1 line"><title>final 3 &amp; 4</title><path d="M1 1l1 1" '
        'clip-path="url(#n-1)" style="fill:none;stroke:#0072b2;stroke-width:1.0" '
        '/></g><defs><clipPath id="n-1"><rect x=".1" y="1" width="5" height="5" '
        "/></clipPath></defs>"
        "</svg>"
    )


def many(methods, rounds):
    """Groups of two noisy runs each, with an evaluation and an unequal share of the update in every
    round."""
    groups = {}
    for i in range(methods):
        runs = []
        for seed in (0, 1):
            rng = np.random.default_rng([i, seed])
            at = list(range(1, rounds + 1))
            noise = (
                0.5 + 0.4 * (1 - np.exp(-np.arange(rounds) / 9)) + rng.normal(0, 0.03, rounds)
            ).tolist()
            seconds = np.cumsum(rng.uniform(1, 3, rounds)).tolist()
            evaluations = fake.table(
                "evaluations",
                round=at,
                time_s=seconds,
                total_bits=[8e6 * s for s in seconds],
                scope=["global"] * rounds,
                client=[-1] * rounds,
                accuracy=noise,
            )
            clients = fake.table(
                "clients",
                round=at * 4,
                client=[0, 1, 2, 3] * rounds,
                outcome=["accepted"] * 4 * rounds,
                theta=rng.uniform(0.1, 0.9, 4 * rounds).tolist(),
                up_mbps=rng.uniform(1, 9, 4 * rounds).tolist(),
                start_s=[0.0] * 4 * rounds,
            )
            sent = fake.table("rounds", round=at, budget=[0.5] * rounds)
            runs.append(
                fake.run(
                    {"selector": {"name": f"m{i}"}},
                    seed=seed,
                    evaluations=evaluations,
                    clients=clients,
                    rounds=sent,
                )
            )
        groups[f"method {i}"] = runs
    return groups


@pytest.mark.parametrize(
    ("draw", "methods", "kilobytes"),
    [
        (lambda groups: plots.curves(groups, "round"), 5, 45),
        (lambda groups: plots.curves(groups, "seconds"), 9, 90),
        (plots.headline_bars, 5, 16),
        (plots.headline_bars, 9, 16),
        (plots.participation_bars, 5, 16),
        (selection_plots.shares, 9, 150),
    ],
    ids=["curves", "panels", "bars", "rows", "participation", "shares"],
)
def test_a_figure_of_hundreds_of_rounds_has_so_many_bytes_at_most(draw, methods, kilobytes):
    assert len(draw(many(methods, 200)).svg.encode()) < 1000 * kilobytes


def test_a_page_can_read_values_along_curves():
    """Three points at x 0, 5, 10 and y 2, 4, 3 on axes from 0 to 10 and 0 to 5: where the page
    takes them to be, they are."""
    with styled():
        figure = new_figure(NARROW, 3.0)
        axes = figure.add_subplot()
        mark(axes.plot([0, 5, 10], [2, 4, 3])[0], 0)
        axes.set(xlim=(0, 10), ylim=(0, 5), xlabel="round", ylabel="accuracy (%)")
        picture = to_svg(figure, "one", "a curve")
    root = ElementTree.fromstring(picture.svg)
    ((left, top, width, height, *ends, x_name, y_name),) = json.loads(root.get("data-axes"))
    assert (ends, x_name, y_name) == ([0, 10, 0, 0, 5, 0], "round", "accuracy (%)")
    path = re.search(
        r'class="method-0 line"><path d="M([\d.]+) ([\d.]+)l([\d.-]+?)(-[\d.]+)l([\d.]+) ([\d.]+)"',
        picture.svg,
    )
    x, y, dx, dy, ex, ey = map(float, path.groups())
    points = [(x, y), (x + dx, y + dy), (x + dx + ex, y + dy + ey)]
    read = [((x - left) / width * 10, (top + height - y) / height * 5) for x, y in points]
    np.testing.assert_allclose(read, [(0, 2), (5, 4), (10, 3)], atol=0.01)


def test_a_page_chooses_every_colour_of_its_figures():
    """What a page on a dark ground does not set would be black on black; white and near-black
    letters stand on coloured cells."""
    groups = many(9, 20)
    first = next(iter(groups.values()))[0]
    labels = fake.table(
        "federation", client=[0, 1], labels=np.eye(10, dtype=int)[:2].tolist(), noise=[0.0, 0.5]
    )
    run = type(first)(first.directory, first.meta, {**first.tables, "federation": labels})
    drawn = [
        plots.curves(groups, "round"),
        plots.headline_bars(groups),
        plots.participation_bars(groups),
    ]
    drawn += [
        selection_plots.class_distribution(run),
        plots.headline_bars(many(3, 20)),
        selection_plots.shares(groups),
    ]
    page = html(Page("t", [], drawn, list(groups)))
    assert not set(re.findall(r"(?:fill|stroke):(#\w+)", page)) - {"#ffffff"}
    for name in PALETTE:
        assert page.count(f"--{name}: ") == 3  # light, dark, and dark printed
