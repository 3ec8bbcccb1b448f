import pytest

from motley.core.errors import ConfigError
from motley.tasks.models import factory
from motley_papers.rules.heterofl_cnn import HeteroFLCNN


@pytest.mark.parametrize(
    ("hidden", "count"), [((64, 128, 256, 512), 1_556_874), ((4, 8, 16, 32), 6_594)]
)
def test_parameters_are_as_printed(hidden: tuple[int, ...], count: int) -> None:
    """e: 40 + 8 + 296 + 16 + 1168 + 32 + 4640 + 64 + 330 = 6,594."""
    module = factory(HeteroFLCNN(hidden), (1, 28, 28), 10)()
    assert sum(p.numel() for p in module.parameters()) == count
    assert module[-1].bias.abs().max().item() == 0.0


def test_images_that_are_too_small_and_no_channels_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"needs images .* of at least 8 x 8; got"):
        factory(HeteroFLCNN(), (1, 4, 8), 10)
    with pytest.raises(ConfigError, match=r"got hidden = \[\]; expected channels"):
        HeteroFLCNN(())
