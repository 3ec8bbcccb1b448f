"""LaTeX of names, numbers and tables; the document with all of them compiles in
test_print_files."""

import pytest

from motley.results.blocks import Table, TableCell, TableRow
from motley.results.measures import Censored, Interval
from motley_report.latex import escaped, figure, page_table, table
from motley_report.print_tables import PrintTable

NAN = float("nan")


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("power_of_choice, 50 % & $5 #1", r"power\_of\_choice, 50 \% \& \$5 \#1"),
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        (
            "a^b ~ <c> |d|",
            r"a\textasciicircum{}b \textasciitilde{} \textless{}c\textgreater{} "
            r"\textbar{}d\textbar{}",
        ),
        ("--over, ---", "-{}-over, -{}-{}-"),
        ('say "no"\n  to\tthis', "say ''no'' to this"),
        ("α 0.1, Λ, ß, é, Č, ± 1–2", r"$\alpha$ 0.1, $\Lambda$, \ss{}, \'{e}, \v{C}, $\pm$ 1--2"),
        ("方 🙂\x07", "[U+65B9] [U+1F642][U+0007]"),
    ],
)
def test_any_text_is_shown_and_runs_no_command(text, latex):
    assert escaped(text) == latex


def test_a_table_by_hand():
    """Two methods; a mean of 90 with 88 to 92 is 90 -+ 2; a lower bound and a single seed have no
    interval."""
    rows = [
        ("a_b", ["2 of 3", Interval(90.0, 88.0, 92.0, 3), Censored(1204.4, False)]),
        ("c", ["1 of 1", Interval(1.5e-7, NAN, NAN, 1), Interval(NAN, NAN, NAN, 0)]),
    ]
    made = table(
        PrintTable(
            "ends",
            "In %.",
            [("Reached", "seeds"), ("Final", "%"), ("Spent", "s^2")],
            rows,
            {1: {0}},
        )
    )
    assert made == "\n".join(
        [
            r"\begin{table*}[t]",
            r"  \centering",
            r"  \footnotesize",
            r"  \caption{In \%.}",
            r"  \label{tab:ends}",
            r"  \begin{tabular}{llrr}",
            r"    \toprule",
            r"    Method & Reached (seeds) & Final (\%) & Spent (s$^2$) \\",
            r"    \midrule",
            r"    a\_b & 2 of 3 & $\mathbf{90.00} \pm 2.00$ & $> 1\,204$ \\",
            r"    c & 1 of 1 & $1.5 \times 10^{-7}$ & -- \\",
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table*}",
            "",
        ]
    )


def test_a_table_of_a_page_by_hand():
    made = page_table(
        Table(
            ["a_b", "final", "said"],
            [TableRow("x", [TableCell("1 ± 2", 1.0, best=True), TableCell("50 %")])],
            "In %.",
        ),
        "t",
        "One",
    )
    assert r"\caption{One. In \%.}" in made
    assert r"\begin{tabular}{lrl}" in made
    assert r"a\_b & final & said \\" in made
    assert r"x & \textbf{1 $\pm$ 2} & 50 \% \\" in made


def test_a_narrow_figure_takes_a_column_and_a_wide_one_the_page():
    assert r"\includegraphics[width=\columnwidth]{curve}" in figure("curve", "50 %", wide=False)
    assert r"\begin{figure*}" in figure("curve", "50 %", wide=True)
    assert r"\caption{50 \%}" in figure("curve", "50 %", wide=True)


def test_a_name_is_no_option_of_the_rule_or_line_above_it():
    """Behind a rule or a line's end LaTeX takes a bracket for a length, and a star away."""
    names = ["[draft] a", "*b", "\u65b9"]
    made = table(PrintTable("t", "Two.", [("x", "")], [(name, ["1"]) for name in names], {}))
    for name in ("[draft] a", "*b", "[U+65B9]"):
        assert f"    {{}}{name} & 1 " in made
    assert "    Method & x " in made
