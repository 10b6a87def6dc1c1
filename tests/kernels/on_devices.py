"""Run by test_devices.py in a process of its own, with four devices that the host pretends."""

import jax
import numpy as np

import largen as lg
from largen.kernels import spread, tiles


def equal_to_one_device(devices):
    x = np.random.default_rng(0).standard_normal((23, 5))
    net = lg.mlp(2, "relu", bias_std=0.3)
    for inputs in ((x,), (x[:9], x[9:]), (x.astype(np.float32),)):
        one, four = lg.kernel(net, *inputs), lg.kernel(net, *inputs, devices=devices)
        for a, b in zip(one, four, strict=True):
            assert a.dtype == b.dtype == inputs[0].dtype
            np.testing.assert_allclose(a, b, rtol=1e-6 if a.dtype == np.float32 else 1e-14)
            assert len(inputs) == 2 or np.array_equal(b, b.T)


def work_is_where_it_was_sent(devices):
    """The tiles' array has a shard on each device, also with masks and a budget."""
    seen, fill = [], spread._fill
    spread._fill = lambda *args: seen.append(fill(*args)) or seen[-1]
    text = np.random.default_rng(1).standard_normal((9, 4, 3))
    mask = np.arange(4) < np.array([4, 3, 2] * 3)[:, None]
    net = lg.serial(lg.Conv((3,)), lg.Activation("relu"), lg.GlobalAvgPool(), lg.Dense())
    small = {"memory_budget": 8e4, "mask1": mask}
    got = lg.nngp_kernel(net, text, devices=devices, **small)
    np.testing.assert_allclose(got, lg.nngp_kernel(net, text, **small), rtol=1e-14)
    assert {shard.device for shard in seen[-1][0].addressable_shards} == set(devices)


if __name__ == "__main__":
    tiles.TILE = 7
    assert len(jax.devices()) == 4
    equal_to_one_device(jax.devices())
    work_is_where_it_was_sent(jax.devices()[1:])
