"""The plane of scalings: its regions, lines and points against Golikov's §3."""

from fractions import Fraction as F

import largen as lg


def test_equal_rates(tmp_path):
    plane = lg.scaling.plane_map(q_sigma=("-3/2", 0), rate=("-1/2", 2), per_unit=8)
    assert set(plane.lines) == {"intermediate", "stuck at initialisation"}
    for start, end in plane.lines["intermediate"]:
        for q, rate in (start, end):
            assert rate == -1 - 2 * q
            assert -1 <= q <= F(-1, 2)
    lengths = sum((end[0] - start[0]) for start, end in plane.lines["intermediate"])
    assert lengths == F(1, 2)  # the whole line from NTK to mean field, once
    assert all(
        q == F(-1, 2) and r <= 0 for ends in plane.lines["stuck at initialisation"] for q, r in ends
    )
    # Away from the lines: diverging above max(−1 − 2q_σ, −q_σ), or right of −½; else vanishing.
    for row, rate in zip(plane.regions, plane.rate, strict=False):
        for kind, q in zip(row, plane.q_sigma, strict=False):
            x, y = q + F(1, 30), rate + F(1, 15)
            border = min(-1 - 2 * x, -x) if x > -1 else -x
            if abs(y - border) > F(1, 4):
                assert kind == ("divergent" if x > F(-1, 2) or y > border else "vanishing"), (x, y)
    assert plane.at(-1, 1).name == "mean field"
    data = plane.to_xarray()
    assert data.kind.sel(q_sigma=-0.75, rate=0.5).item() == "intermediate"
    assert "point: default, (-1/2, 1, 0), not on this plane" in str(plane)
    plane.plot(tmp_path / "plane.png")
    assert (tmp_path / "plane.png").stat().st_size > 10_000


def test_rates_apart():
    """q̃_w = q̃_a − 1, the plane of the default scaling: output weights alone learn below −1."""
    plane = lg.scaling.plane_map(q_sigma=("-7/4", "-1/4"), rate=(0, 2), difference=-1, per_unit=4)
    assert plane.at("-1/2", 1).name == "default"
    assert set(plane.lines) == {"intermediate", "output layer only"}
    assert "q̃_w = q̃_a + (-1)" in str(plane)
