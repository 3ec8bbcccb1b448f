import numpy as np
import pytest
import torch

from motley.core.keys import Key
from motley.tasks.pixels import ImageTransform, Scaling, crop_flip, statistics


def test_statistics_are_exact_and_of_the_rows_asked_for() -> None:
    x = torch.randint(
        0, 256, (50, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    rows = np.arange(10, 40)
    part = x[10:40].double().transpose(0, 1).reshape(3, -1)
    for stored in (x, x.float()):
        mean, deviation = statistics(stored, rows)
        torch.testing.assert_close(mean, part.mean(1))
        torch.testing.assert_close(deviation, part.std(1, correction=0))


def test_scaling() -> None:
    x = torch.tensor([0, 255, 51], dtype=torch.uint8).view(3, 1, 1, 1)
    assert Scaling.unit(x)(x).flatten().tolist() == pytest.approx([0.0, 1.0, 0.2])
    assert Scaling.symmetric(x)(x).flatten().tolist() == pytest.approx([-1.0, 1.0, -0.6])
    assert Scaling.symmetric(x / 255)(x / 255).flatten().tolist() == pytest.approx([-1, 1, -0.6])
    assert Scaling.unit(x.float())(x.float()).flatten().tolist() == [0.0, 255.0, 51.0]
    out = Scaling.standard(x, np.arange(3))(x)
    assert out.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert out.std(correction=0).item() == pytest.approx(1.0, abs=1e-6)
    flat = torch.full((4, 1, 2, 2), 7, dtype=torch.uint8)
    assert Scaling.standard(flat, np.arange(4))(flat).abs().max().item() == 0.0


@pytest.mark.parametrize("reflects", [False, True])
def test_every_augmented_image_is_a_crop_of_the_padded_original_or_its_mirror(
    reflects: bool,
) -> None:
    x = torch.randint(
        1, 256, (40, 2, 6, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    out = crop_flip(x, Key(3), padding=2, reflects=reflects)
    assert out.dtype == torch.uint8
    seen = set()
    for image, got in zip(x, out, strict=True):
        wide = torch.nn.functional.pad(
            image.float(), (2, 2, 2, 2), mode="reflect" if reflects else "constant"
        ).to(torch.uint8)
        crops = {
            (i, j, f): (crop.flip(-1) if f else crop)
            for i in range(5)
            for j in range(5)
            for crop in [wide[:, i : i + 6, j : j + 5]]
            for f in (False, True)
        }
        found = [name for name, crop in crops.items() if torch.equal(crop, got)]
        assert found
        seen.add(found[0])
    assert len(seen) > 15  # of 50


def test_augmentation_is_keyed_and_off_without_a_key() -> None:
    x = torch.randint(0, 256, (8, 1, 8, 8), dtype=torch.uint8)
    show = ImageTransform(Scaling.unit(x), augment=True)
    assert torch.equal(show(x, Key(0)), show(x, Key(0)))
    assert not torch.equal(show(x, Key(0)), show(x, Key(1)))
    assert torch.equal(show(x, None), x / 255.0)
    assert torch.equal(ImageTransform(Scaling.unit(x), augment=False)(x, Key(0)), x / 255.0)


def test_the_first_random_numbers_stay() -> None:
    """Golden bits: three 3x3 ramps under Key(0). The first is mirrored where it stands; the second
    is mirrored and moved down by one; the third is moved down by one."""
    x = torch.arange(1.0, 10.0).view(1, 1, 3, 3).repeat(3, 1, 1, 1)
    assert crop_flip(x, Key(0), padding=1).flatten(1).int().tolist() == [
        [3, 2, 1, 6, 5, 4, 9, 8, 7],
        [0, 0, 0, 3, 2, 1, 6, 5, 4],
        [0, 0, 0, 1, 2, 3, 4, 5, 6],
    ]
