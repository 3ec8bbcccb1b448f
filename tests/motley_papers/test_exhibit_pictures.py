"""What the pictures of cells draw where: dots, lower bounds, and what was published."""

import pytest

from motley.results.measures import Spread
from motley_papers import exhibit_pictures
from motley_papers.exhibit_pictures import ExhibitData, draw
from motley_report import figures

MEASURED = {
    ("1", "a"): Spread(10, 1, 3),
    ("2", "a"): Spread(20, 2, 3),
    ("1", "b"): Spread(30, 0, 3),
    ("2", "b"): Spread(40, 0, 3),
}


def shown(bounds=frozenset(), published=None):
    axes = {"target": ["1", "2"], "method": ["a", "b"]}
    return ExhibitData(
        axes,
        {},
        {"seconds": MEASURED},
        {"seconds": set(bounds)},
        {"seconds": published or {}},
        {"seconds": "virtual s"},
    )


@pytest.fixture
def drawn(monkeypatch):
    """``drawn(kind, shown)``: the axes that were drawn."""
    figures = []
    monkeypatch.setattr(
        exhibit_pictures, "to_svg", lambda figure, name, about: figures.append(figure) or name
    )

    def of(kind, what):
        assert [(one.title, one.methods, one.picture) for one in draw(kind, what)] == [
            ("", ["a", "b"], kind.partition(":")[0])
        ]
        return figures[-1].axes[0]

    return of


def points(axes, marker):
    return [
        tuple(map(float, xy))
        for line in axes.lines
        if line.get_marker() == marker
        for xy in zip(*line.get_data(), strict=True)
    ]


def test_a_lower_bound_is_a_triangle_beside_dots(drawn):
    axes = drawn("beside:seconds", shown({("2", "b")}, {("1", "a"): 12.0}))
    assert points(axes, "o") == [(10, 0), (20, 1), (30, 2)]
    assert points(axes, ">") == [(40, 3)]
    assert points(axes, "D") == [(12, 0)]
    said = axes.figure.get_suptitle()
    assert said == "dot: mean, with one standard deviation; triangle: at least; diamond: published"
    assert axes.get_ylim() == (3.5, -0.5)  # the first row on top, and all of every mark is seen


def test_a_line_leaves_lower_bounds_out(drawn):
    axes = drawn("line:seconds", shown({("2", "b")}, {("1", "a"): 12.0}))
    assert points(axes, "o") == [(0, 10), (1, 20), (0, 30)]
    assert points(axes, "^") == [(1, 40)]
    assert points(axes, "D") == [(0, 12)]
    assert axes.get_title("left") == "virtual s (diamonds: published, triangles: at least)"


def test_the_words_for_a_picture_name_what_is_in_it(monkeypatch):
    monkeypatch.setattr(exhibit_pictures, "to_svg", lambda figure, name, about: about)
    said = [
        draw("beside:seconds", shown(published=published))[0].picture
        for published in ({}, {("9", "a"): 12.0}, {("1", "a"): 12.0})
    ]
    both = "virtual s, measured and published, of 4 cells"
    assert said == ["virtual s of 4 cells", "virtual s of 4 cells", both]


def test_what_is_not_there_is_not_explained(drawn):
    assert drawn("line:seconds", shown()).get_title("left") == "virtual s"
    assert (
        drawn("beside:seconds", shown()).figure.get_suptitle()
        == "dot: mean, with one standard deviation"
    )


def test_a_line_over_the_only_axis_is_of_no_method():
    measured = {("1",): Spread(10, 1, 3), ("2",): Spread(20, 2, 3)}
    what = ExhibitData(
        {"target": ["1", "2"]},
        {},
        {"seconds": measured},
        {"seconds": set()},
        {},
        {"seconds": "virtual s"},
    )
    assert [one.methods for one in draw("line:seconds", what)] == [[]]


def test_many_cells_share_the_row_of_their_panel(drawn):
    axes = {"target": [str(n) for n in range(21)], "method": ["a", "b"]}
    measured = {
        (target, method): Spread(n, 1, 3)
        for n, target in enumerate(axes["target"])
        for method in "ab"
    }
    published = {("3", "b"): 5.0}
    what = ExhibitData(
        axes,
        {},
        {"seconds": measured},
        {"seconds": set()},
        {"seconds": published},
        {"seconds": "virtual s"},
    )
    seen = drawn("beside:seconds", what)
    assert [text.get_text() for text in seen.get_yticklabels()] == axes["target"]
    # 0.85 of a row for two methods
    assert points(seen, "o")[:4] == [(0, -0.2125), (0, 0.2125), (1, 0.7875), (1, 1.2125)]
    assert points(seen, "D") == [(5, 3.2125)]
    assert [text.get_text() for text in seen.figure.legends[0].get_texts()] == ["a", "b"]


def test_methods_of_one_colour_differ_in_their_marker():
    assert [(figures.colour(i), figures.dot(i)) for i in (0, 7)] == [
        ("#0072B2", "o"),
        ("#0072B2", "s"),
    ]
