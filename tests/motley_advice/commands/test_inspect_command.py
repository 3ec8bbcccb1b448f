"""The name of the page that ``motley inspect`` writes where none is given."""

from pathlib import Path

from motley_advice.commands.inspect import page_name


def test_a_page_is_called_like_what_it_shows() -> None:
    assert page_name([Path("small.toml"), Path("runs/a b")]) == "inspect-small-a-b.html"


def test_pages_of_many_federations_do_not_overwrite_each_other() -> None:
    folders = [Path(f"runs/hospital-{number:02}") for number in range(20)]
    names = {page_name([*folders, Path(f"ward-{number}.csv")]) for number in range(3)}
    assert len(names) == 3
    assert all(len(name.encode()) < 255 for name in names)
