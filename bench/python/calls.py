"""Times calls from Python on 8 floats: mytorch beside NumPy and PyTorch, in turns.

    PYTHONPATH=build/release/python python bench/python/calls.py [--rounds 7]

A row is the median of the rounds, in nanoseconds a call without the loop, and the ratio to each peer's. A peer that is
not installed is left out.
"""

import argparse
import statistics
import sys
import time
import timeit


def imported(name):
    begun = time.perf_counter()
    try:
        module = __import__(name)
    except ImportError:
        return None, 0.0
    return module, (time.perf_counter() - begun) * 1e3


def chain(x):
    for _ in range(100):
        x = x * x
    return x.sum()


def nanoseconds(call, number):
    return timeit.timeit(call, number=number) / number * 1e9


def cases(mt, np, torch):
    """Returns (name, calls in a round, the call of each library or None)."""
    a = np.full(8, 0.5, np.float32)
    x, w = mt.tensor(a), mt.tensor(a, requires_grad=True)
    y, v = (torch.tensor(a), torch.tensor(a, requires_grad=True)) if torch else (None, None)

    def gradient(leaf):
        leaf.grad = None
        chain(leaf).backward()

    def peer(call):
        return call if torch else None

    return [
        ("add(x, y)", 100000, lambda: mt.add(x, x), lambda: np.add(a, a), peer(lambda: torch.add(y, y))),
        ("x + y", 100000, lambda: x + x, lambda: a + a, peer(lambda: y + y)),
        ("x + 1", 100000, lambda: x + 1, lambda: a + 1, peer(lambda: y + 1)),
        (
            "add(x, y, out=z)",
            100000,
            lambda: mt.add(x, x, out=x),
            lambda: np.add(a, a, out=a),
            peer(lambda: torch.add(y, y, out=y)),
        ),
        ("x.sum()", 100000, lambda: x.sum(), lambda: a.sum(), peer(lambda: y.sum())),
        ("x.reshape(2, 4)", 100000, lambda: x.reshape(2, 4), lambda: a.reshape(2, 4), peer(lambda: y.reshape(2, 4))),
        ("x[2:6]", 100000, lambda: x[2:6], lambda: a[2:6], peer(lambda: y[2:6])),
        ("x.softmax(0)", 50000, lambda: x.softmax(0), None, peer(lambda: y.softmax(0))),
        ("100 products, forward and backward", 300, lambda: gradient(w), None, peer(lambda: gradient(v))),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    mt, ours = imported("mytorch")
    np, numpy_ms = imported("numpy")
    torch, torch_ms = imported("torch")
    if np is None:
        sys.exit("NumPy is the peer of this benchmark: install it")
    print(f"mytorch {mt.__version__}, numpy {np.__version__}, torch {torch.__version__ if torch else 'not installed'}")
    print(f"import, ms: mytorch {ours:.0f}, numpy {numpy_ms:.0f}, torch {torch_ms:.0f}")
    print(f"{'':36} {'mytorch':>9} {'numpy':>9} {'ratio':>6} {'torch':>9} {'ratio':>6}")
    for name, number, *calls in cases(mt, np, torch):
        times = [[] for _ in calls]
        for _ in range(args.rounds):
            loop = nanoseconds(lambda: None, number)
            for found, call in zip(times, calls):
                if call is not None:
                    found.append(nanoseconds(call, number) - loop)
        medians = [statistics.median(found) if found else None for found in times]
        row = f"{name:36} {medians[0]:9.0f}"
        for median in medians[1:]:
            row += f" {median:9.0f} {medians[0] / median:6.2f}" if median else f" {'':9} {'':6}"
        print(row)


if __name__ == "__main__":
    main()
