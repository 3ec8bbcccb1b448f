import pytest

from motley.core.errors import ConfigError
from motley_papers.recipe import read
from motley_papers.reproduce import plan
from tests.motley_papers.fewest import distinct
from tests.motley_papers.toy import EXPECTED, RECIPE, folder


@pytest.fixture
def toy(tmp_path):
    return read(folder(tmp_path / "toy"))


def test_cells_are_every_combination_that_a_scale_runs(toy):
    table = toy.named("table 2")
    assert [cell.name for cell in table.cells("paper")] == ["0.3 / random", "1.0 / random"]
    assert [cell.name for cell in table.cells("small")] == ["0.3 / random"]


def test_a_figure_takes_what_it_does_not_say_from_the_table_it_is_like(toy):
    figure = toy.named("figure 1")
    assert [cell.name for cell in figure.cells("small")] == ["random", "power_of_choice"]
    assert figure.target == 0.9
    assert figure.measures == []


def test_settings_lie_over_each_other_and_the_scale_has_the_last_word(toy):
    cell = toy.named("table 2").cells("paper")[1]
    at_paper, at_smoke = (toy.experiment(cell, scale, 7) for scale in ("paper", "smoke"))
    assert at_paper.partition["alpha"] == 1.0
    assert (at_paper.stop.rounds, at_smoke.stop.rounds) == (3, 1)
    assert (at_paper.seed, at_paper.name) == (7, "toy-paper")
    assert toy.experiment(cell, "paper", 7, ["stop.rounds=5"]).stop.rounds == 5
    assert cell.target == 0.5


def test_exhibits_that_come_to_the_same_experiment_share_it(toy):
    made = plan(toy, toy.exhibit, "small")
    ids = [experiment.run_id() for experiment in made.values()]
    # table 1: 2 methods x 2 seeds; table 2 at 0.3 is its "random"; the figure has nothing of its
    # own
    assert (len(ids), len(set(ids))) == (2 * 2 + 2 + 4, 4)


def test_distinct_keeps_one_run_for_each_choice_of_words(toy):
    made = list(plan(toy, toy.exhibit, "paper").values())
    kept = distinct(made)
    # the former probes "all"
    assert [e.selector["name"] for e in kept] == ["power_of_choice", "uniform"]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([], ["table 1", "table 2", "figure 1"]),
        (["figure 1", "table 2"], ["figure 1", "table 2"]),
    ],
)
def test_choosing(toy, names, found):
    assert [exhibit.name for exhibit in toy.choose(names)] == found


def test_a_number_does_not_mean_longer_numbers(tmp_path):
    text = RECIPE.replace('name = "table 2"', 'name = "table 12"').replace(
        'name = "figure 1"', 'name = "table 1, again"'
    )
    recipe = read(folder(tmp_path / "toy", text, EXPECTED.replace("table 2", "table 12")))
    assert [exhibit.name for exhibit in recipe.choose(["table 1"])] == ["table 1", "table 1, again"]
    with pytest.raises(
        ConfigError, match=r"toy has no table 2 .*; it has: table 1; table 12; table 1, again"
    ):
        recipe.choose(["table 2"])
    with pytest.raises(ConfigError, match="toy has no exhibit without a name; it has: table 1"):
        recipe.choose([""])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'like = "table 1"',
            'like = "table 7"',
            "figure 1: there is no exhibit 'table 7' to be like",
        ),
        ('measures = ["final"]', 'measures = ["finale"]', "table 2: there is no measure 'finale'"),
        (
            'pictures = ["classes"]',
            'pictures = ["clases"]',
            "figure 1: there is no picture 'clases'",
        ),
        (
            'only = { alpha = ["0.3"] }',
            'only = { alpha = ["0.2"] }',
            "table 2: alpha has no value '0.2'; it has: 0.3, 1.0",
        ),
        (
            'only = { alpha = ["0.3"] }',
            'axes.alpha."0.2" = {}',
            "table 2: alpha has no value '0.2'; it has: 0.3, 1.0",
        ),
        (
            'only = { alpha = ["0.3"] }',
            "axes.mu.a = {}",
            "table 2 has no axis 'mu'; it has: alpha, method",
        ),
        (
            'where = { method = "random" }',
            'where = { mu = "random" }',
            "table 1 has no axis 'mu'; it has: method",
        ),
        ("above = 1", "", "needs exactly one of: higher, lower, below or above"),
        (
            "above = 1",
            "above = 1\nbelow = 2",
            "needs exactly one of: higher, lower, below or above",
        ),
        (
            "above = 1",
            "above = 1\nhigher = { method = 'random' }",
            "needs exactly one of: higher, lower, below or above",
        ),
        ('than = { method = "random" }', "", "higher and lower need than"),
        (
            '"curves", ',
            '"curves:hours", ',
            "table 1: there is no picture 'curves:hours'; only curves take an axis: round, "
            "selections, seconds",
        ),
        ('"line:final"', '"heat:final"', "table 2: heat:final needs at least 3 axes; it has 2"),
        ("[scale.smoke]", "[scale.tiny]", "recipe.toml: scale.tiny"),
        (
            'title = "A toy"',
            'titel = "A toy"',
            "toy/recipe.toml: titel: there is no such key (did you mean 'title'?)",
        ),
        (
            "[scale.smoke]\n",
            "[scale.smoke]\nminute = 3\n",
            "scale.smoke.minute: there is no such key (did you mean 'minutes'?)",
        ),
        (
            'name = "table 2"',
            'nam = "table 2"',
            "exhibit.1.nam: there is no such key (did you mean 'name'?)",
        ),
        ('name = "table 2"', 'name = "table 1"', "two exhibits have the same name"),
        (
            'text = "It learns"',
            'text = "It learns"\nmeasure = "peek"',
            "the claim 'It learns': there is no measure 'peek'",
        ),
        (
            'pictures = ["line:final"]',
            'pictures = ["line:fin"]',
            "table 2: line:fin: there is no measure 'fin'",
        ),
        ("[base]", "[base", "toy/recipe.toml, line "),
        (
            'name = "table 1"\n',
            'name = "table 1"\nlike = "table 2"\n',
            "table 1: got like = 'table 2'; expected an exhibit that stands above it",
        ),
        ('like = "table 1"', 'like = "figure 1"', "figure 1: got like = 'figure 1'; expected an"),
        (
            "[scale.smoke]\n",
            '[scale.smoke]\nonly = { alpha = ["0.3"] }\n',
            "scale smoke: got only, which an exhibit says of itself; write it in its table "
            "[exhibit.scale.smoke]",
        ),
        ("seeds = [0, 1]\n", "seeds = [0, 0]\n", "scale small: got the seeds [0, 0]; expected at"),
        (
            'only = { alpha = ["0.3"] }',
            "seeds = []",
            "table 2 at small: got the seeds []; expected at least one, and each once",
        ),
        (
            'only = { alpha = ["0.3"] }',
            "set = { target = 0.3 }",
            "table 2 at small: got a target; write it in the exhibit or in the values of its axes",
        ),
        ("target = 0.5", 'target = "half"', "table 2: got target = 'half'; expected a number"),
        ("population = 10\n", "population = 10\nseed = 3\n", "base: got seed, which a recipe has"),
        (
            "[scale.smoke]",
            '[base.grid]\n"local.steps" = [1, 2]\n[scale.smoke]',
            "base: got grid, which a recipe has in another form",
        ),
        (
            'spread = "two deviations"',
            "spread_deviations = 0",
            "toy: got spread_deviations = 0; expected a number above 0",
        ),
        (
            'spread = "two deviations"',
            "printed_seeds = -1",
            "the recipe: got printed_seeds = -1; expected at least 1",
        ),
        (
            'text = "Power-of-Choice beats random"',
            'text = "It learns"',
            "two claims have the text 'It learns'",
        ),
        (
            "above = 1",
            'above = 1\nof = "spread"',
            "the claim 'It learns': of = 'spread' compares two sides",
        ),
        (
            'higher = { method = "power_of_choice" }',
            'higher = { method = "power_of_choice", measure = ["final", "peak"] }',
            "got 2 measures of one side; expected one",
        ),
        (
            'higher = { method = "power_of_choice" }',
            'higher = { method = "random" }',
            "the claim 'Power-of-Choice beats random': both sides are the same cells",
        ),
        (
            'higher = { method = "power_of_choice" }',
            'higher = { method = "power_of_choice" }\nwhere = { method = "random" }',
            "got method under where and of a side; expected it in one of both",
        ),
    ],
)
def test_what_cannot_be_is_said(tmp_path, old, new, message):
    assert old in RECIPE
    with pytest.raises(ConfigError) as error:
        read(folder(tmp_path / "toy", RECIPE.replace(old, new)))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("table 1,oort,final,1,", "expected.csv has table 1, oort, which is no cell"),
        (
            "table 1,random,peak,1,",
            "expected.csv has the measure peak of table 1, which does not show it",
        ),
    ],
)
def test_expected_values_belong_to_cells(tmp_path, row, message):
    with pytest.raises(ConfigError, match=message):
        read(folder(tmp_path / "toy", expected=EXPECTED + row + "\n"))


def test_a_number_is_printed_once(tmp_path):
    with pytest.raises(ConfigError, match=r"two values of table 1, random, final: 71\.5 and 72"):
        read(folder(tmp_path / "toy", expected=EXPECTED + "table 1,random,final,72,\n"))


def test_the_digits_of_a_printed_number(tmp_path):
    rows = EXPECTED.replace("71.5,", " 71.50 ,").replace("60,", "6.0e-3,")
    assert list(read(folder(tmp_path / "toy", expected=rows)).decimals.values()) == [2, 4]


@pytest.mark.parametrize(
    "row",
    ["table 1,random,final,much,", "table 1,random", "table 1,power_of_choice,final,nan,"],
)
def test_expected_values_are_numbers(tmp_path, row):
    with pytest.raises(
        ConfigError, match=r"expected.csv: got .*; expected the columns exhibit, cell"
    ):
        read(folder(tmp_path / "toy", expected=EXPECTED + row + "\n"))


def test_a_scale_changes_single_cells_last(tmp_path):
    """At small the cells of alpha 0.3 have two steps of batch 8; those of 1.0, and those of another
    scale, keep 16."""
    text = RECIPE.replace(
        'scale.small.only = { alpha = ["0.3"] }',
        'scale.small.set = { "local.batch_size" = 16 }\nscale.small.axes.alpha."0.3" = { '
        '"local.batch_size" = 8 }',
    )
    recipe = read(folder(tmp_path / "toy", text))
    sizes = {
        scale: [
            recipe.experiment(cell, scale, 0).local.batch_size
            for cell in recipe.named("table 2").cells(scale)
        ]
        for scale in ("small", "paper")
    }
    assert sizes == {"small": [8, 16], "paper": [16, 16]}


def test_a_setting_that_is_no_experiment_names_its_cell(tmp_path):
    recipe = read(
        folder(
            tmp_path / "toy", RECIPE.replace('"partition.alpha" = 1.0', '"partition.alpha" = -1.0')
        )
    )
    with pytest.raises(ConfigError, match=r"toy, table 2, 1.0 / random: partition"):
        plan(recipe, recipe.exhibit, "paper")


def test_unknown_recipes_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no recipe 'nothing'"):
        read("nothing")
    with pytest.raises(ConfigError, match=r"a folder with a recipe\.toml"):
        read(tmp_path)
    (tmp_path / "mine.toml").write_text("")
    with pytest.raises(ConfigError, match=r"the file of a table is .*mine\.toml"):
        read(tmp_path / "mine")
