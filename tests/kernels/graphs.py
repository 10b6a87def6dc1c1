"""Networks that no tree of layers is, by what they are called."""

from __future__ import annotations

import largen as lg

DENSE = lg.Dense(weight_std=1.3, bias_std=0.2)
CONV = lg.Conv((3,), weight_std=1.3, bias_std=0.2)
RELU, TANH = lg.Activation("relu"), lg.Activation("tanh")
SIGMOID = lg.Activation("sigmoid")
POOL = lg.GlobalAvgPool()


def recurrent(steps: int = 4, phi: lg.layers.Layer = TANH) -> lg.layers.Graph:
    """h ← φ(W h + u), and the mean of all states."""
    nodes, h, states = {"u": (lg.Dense(), "x")}, "u", []
    for n in range(1, steps + 1):
        nodes[f"h{n}"] = (phi, h)
        states.append(f"h{n}")
        if n < steps:
            again = lg.Dense(weight_std=1.1, bias_std=0.3) if n == 1 else "W1"
            nodes[f"W{n}"] = (again, f"h{n}")
            nodes[f"s{n}"] = ("sum", f"W{n}", "u")
            h = f"s{n}"
    nodes["mean"] = ("sum", *((1 / steps, state) for state in states))
    return lg.layers.Graph({**nodes, "f": (DENSE, "mean")})


def looped(times: int = 3) -> lg.layers.Graph:
    """h ← h + W relu(h/|h|), with one weight for all steps."""
    nodes, h = {"h0": (DENSE, "x")}, "h0"
    block = lg.serial(lg.RMSNorm(), RELU, DENSE)
    for n in range(1, times + 1):
        nodes[f"b{n}"] = (block if n == 1 else "b1", h)
        nodes[f"h{n}"] = ("sum", h, f"b{n}")
        h = f"h{n}"
    return lg.layers.Graph({**nodes, "f": (DENSE, h)})


GRAPHS = {
    "U-net with concatenation": (
        lg.layers.Graph(
            {
                "e1": (lg.serial(CONV, RELU), "x"),
                "down": (lg.layers.AvgPool((2,)), "e1"),
                "e2": (lg.serial(CONV, RELU), "down"),
                "up": (
                    lg.serial(lg.layers.ConvTranspose((2,), strides=2, weight_std=1.3), RELU),
                    "e2",
                ),
                "both": ("concatenate", "e1", "up"),
                "d": (lg.serial(CONV, RELU), "both"),
                "f": (lg.serial(POOL, DENSE), "d"),
            }
        ),
        (4, 2),
    ),
    "two towers with shared weights": (
        lg.layers.Graph(
            {
                "a": (lg.serial(DENSE, RELU), "x"),
                "b": (lg.serial(DENSE, RELU), "x"),
                "Wa": (DENSE, "a"),
                "Wb": ("Wa", "b"),
                "apart": ("sum", "Wa", (-1.0, "Wb")),
                "f": (lg.serial(TANH, DENSE), "apart"),
            }
        ),
        (3,),
    ),
    "unrolled recurrence": (recurrent(), (3,)),
    "dense connections": (
        lg.layers.Graph(
            {
                "h0": (lg.serial(DENSE, RELU), "x"),
                "h1": (lg.serial(DENSE, RELU), "h0"),
                "c1": ("concatenate", "h0", "h1"),
                "h2": (lg.serial(DENSE, RELU), "c1"),
                "c2": ("concatenate", "h0", "h1", "h2"),
                "f": (DENSE, "c2"),
            }
        ),
        (3,),
    ),
    "skip from the input to the read-out": (
        lg.layers.Graph(
            {
                "h": (DENSE, "x"),
                "a": (lg.serial(RELU, DENSE, TANH), "h"),
                "all": ("sum", "h", "a"),
                "f": (DENSE, "all"),
            }
        ),
        (3,),
    ),
    "gate of two streams": (
        lg.layers.Graph(
            {
                "h": (DENSE, "x"),
                "c": (lg.serial(TANH, DENSE), "h"),
                "z": (lg.serial(RELU, DENSE, SIGMOID), "h"),
                "1 - z": (lg.Activation(lambda z: 1 - z), "z"),
                "new": ("product", "z", "c"),
                "old": ("product", "1 - z", "h"),
                "s": ("sum", "new", "old"),
                "f": (DENSE, "s"),
            }
        ),
        (3,),
    ),
    "weight used twice with a skip": (
        lg.layers.Graph(
            {
                "h": (DENSE, "x"),
                "g": (lg.serial(TANH, DENSE), "h"),
                "g2": ("g", "g"),
                "s": ("sum", "g", "g2", "h"),
                "f": (lg.serial(TANH, DENSE), "s"),
            }
        ),
        (3,),
    ),
    "looped block with RMSNorm": (looped(), (3,)),
    "convolution used twice": (
        lg.layers.Graph(
            {
                "h": (CONV, "x"),
                "g": (lg.serial(RELU, CONV), "h"),
                "g2": ("g", "g"),
                "s": ("sum", "g", "g2"),
                "f": (lg.serial(RELU, POOL, DENSE), "s"),
            }
        ),
        (4, 2),
    ),
    "overlapping skips": (
        lg.layers.Graph(
            {
                "h0": (DENSE, "x"),
                "h1": (lg.serial(RELU, DENSE), "h0"),
                "a": (lg.serial(TANH, DENSE), "h0"),
                "b": (lg.serial(RELU, DENSE), "h1"),
                "s2": ("sum", "a", "b"),
                "s3": ("sum", "s2", "h1"),
                "c": (lg.serial(RELU, DENSE), "s3"),
                "t": (TANH, "h1"),
                "s4": ("sum", "c", "s2", "t"),
                "f": (DENSE, "s4"),
            }
        ),
        (3,),
    ),
    "functions of dependent values": (
        lg.layers.Graph(
            {
                "h": (DENSE, "x"),
                "g": (lg.serial(RELU, DENSE), "h"),
                "s": ("sum", "h", "g"),
                "r": (RELU, "s"),
                "t": (TANH, "h"),
                "both": ("sum", "r", "t"),
                "f": (DENSE, "both"),
            }
        ),
        (3,),
    ),
}
