"""A recipe of two tables and a figure on scikit-learn's digits, six rounds a run at most."""

from pathlib import Path

RECIPE = """
title = "A toy"
spread = "two deviations"

[base]
population = 10
cohort = 4
stop = { rounds = 3 }
task = { name = "image", data = "digits", model = "digits_mlp" }
partition = { name = "dirichlet", alpha = 0.3 }
local = { steps = 2, batch_size = 16, optimizer = { name = "sgd", lr = 0.05 } }
device = { name = "uniform", low = 0.1, high = 0.5 }
network = { name = "uniform", up_mbps = [1.0, 5.0] }

[scale.smoke]
set = { "stop.rounds" = 1 }

[scale.small]
seeds = [0, 1]
minutes = 0.1
note = "Digits instead of photographs."

[scale.paper]
seeds = [0, 1, 2]

[[exhibit]]
name = "table 1"
title = "Methods"
target = 0.9
measures = ["final", "seconds_to_target", "participation_std"]
pictures = ["curves", "beside:final", "participation"]
[exhibit.axes.method]
random = { selector = "uniform" }
power_of_choice = { selector = { name = "power_of_choice", d = 8 } }

[[exhibit]]
name = "table 2"
title = "Skew"
measures = ["final"]
pictures = ["line:final"]
scale.small.only = { alpha = ["0.3"] }
[exhibit.axes.alpha]
"0.3" = { "partition.alpha" = 0.3 }
"1.0" = { "partition.alpha" = 1.0, target = 0.5 }
[exhibit.axes.method]
random = { selector = "uniform" }

[[exhibit]]
name = "figure 1"
title = "Who holds what"
like = "table 1"
pictures = ["classes"]

[[claim]]
text = "It learns"
source = "Table 1"
published = "more than chance"
exhibit = "table 1"
where = { method = "random" }
above = 1

[[claim]]
text = "Power-of-Choice beats random"
exhibit = "table 1"
higher = { method = "power_of_choice" }
than = { method = "random" }
"""
EXPECTED = """exhibit,cell,measure,value,spread
table 1,random,final,71.5,2.0
table 2,1.0 / random,final,60,
"""


def folder(where: Path, recipe: str = RECIPE, expected: str = EXPECTED) -> Path:
    where.mkdir(parents=True, exist_ok=True)
    (where / "recipe.toml").write_text(recipe)
    (where / "expected.csv").write_text(expected)
    (where / "notes.md").write_text(
        "The **batch** size, see [the code](https://example.org), is `not` said.\n\n- READING: "
        "16\n- one more\n"
    )
    return where
