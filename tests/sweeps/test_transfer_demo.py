"""The demonstration of transfer, at the smallest size; its numbers are those of its sweeps."""

import numpy as np

from largen.sweeps.transfer_demo import Settings, transfer_demo

SMALL = Settings(
    base=(16, 2),
    target=(32, 4),
    lrs=(2.0**-6, 2.0**-4),
    around=(0.5, 1.0),
    steps=20,
    batch_size=32,
    check_widths=(16, 64),
    check_depths=(2, 8),
)


def test_the_whole_story():
    seen = []
    found = transfer_demo(SMALL, lambda text, done: seen.append((text, done)))
    assert found.lr == 2.0**-4  # the larger of two small rates
    for scheme, (here, best, lr) in found.losses().items():
        assert best <= here
        loss = found.large.data["loss"].sel(scheme=scheme).squeeze()
        assert float(loss.sel(lr=found.lr)) == here
        assert float(loss.sel(lr=lr)) == best
    assert found.plan.depth_ratio == 2.0
    # Outputs move more in wide and deep standard networks, and alike in depth-μP.
    slopes = {scheme: own["output"] for scheme, own in found.slopes().items()}
    assert slopes["standard"][0] > slopes["depth_mup"][0] + 0.3
    assert slopes["standard"][1] > slopes["depth_mup"][1] + 0.3
    done = [part for _, part in seen]
    assert done == sorted(done)
    assert np.isclose(done[-1], 0.9)
