"""The cases of bench/compiled.cpp in JAX, compiled by XLA for the CPU. Prints a line per case: its name, and the median
in microseconds, twice: JAX has no eager mode that anybody would measure.

    compiled_jax.py [--threads N]
"""

import argparse
import os
import statistics
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    # XLA takes as many threads as the process may use processors.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    import jax
    import jax.numpy as jnp

    keys = iter(jax.random.split(jax.random.PRNGKey(0), 32))

    def seconds(call, calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            result = call()
        jax.block_until_ready(result)
        return (time.perf_counter() - begin) / calls

    def measure(name: str, call) -> None:
        for _ in range(5):
            jax.block_until_ready(call())
        calls = max(1, int(0.02 / seconds(call, 3)))
        time_of = 1e6 * statistics.median(seconds(call, calls) for _ in range(15))
        print(f"{name} {time_of:.3f} {time_of:.3f}", flush=True)

    def function(name: str, body, *arguments) -> None:
        compiled = jax.jit(body)
        measure(name, lambda: compiled(*arguments))

    def chain(y, operators: int):
        for _ in range(operators // 2):
            y = y * 1.0001 + 0.5
        return y

    def layer_norm(x, weight, bias):
        wide = x.astype(jnp.float32)
        centered = wide - wide.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(centered).mean(-1, keepdims=True) + 1e-5)
        return (centered * scale * weight + bias).astype(x.dtype)

    def softmax(x):
        wide = x.astype(jnp.float32)
        e = jnp.exp(wide - wide.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True)).astype(x.dtype)

    def residual_rms_norm(x, residual, weight):
        total = x.astype(jnp.float32) + residual.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.square(total).mean(-1, keepdims=True) + 1e-6)
        return (total * scale * weight).astype(x.dtype)

    function("chain_100_of_8", lambda y: chain(y, 100), jax.random.normal(next(keys), (8,)))
    function("chain_10_of_16M", lambda y: chain(y, 10), jax.random.normal(next(keys), (1 << 24,)))
    x, y = (jax.random.normal(next(keys), (1024, 1024), jnp.bfloat16) for _ in range(2))
    weight, bias = (jax.random.normal(next(keys), (1024,)) for _ in range(2))
    function("layer_norm", layer_norm, x, weight, bias)
    function("softmax", softmax, x)
    function("residual_rms_norm", residual_rms_norm, x, y, weight)

    def mlp_step(batch: int) -> None:
        sizes = (784, 256, 256, 10)
        parameters = [
            (jax.random.normal(next(keys), (m, n)) / m**0.5, jnp.zeros(n)) for m, n in zip(sizes, sizes[1:])
        ]
        images = jax.random.normal(next(keys), (batch, 784))
        labels = jax.random.randint(next(keys), (batch,), 0, 10)

        def loss_of(parameters):
            h = images
            for weight, bias in parameters[:-1]:
                h = jax.nn.relu(h @ weight + bias)
            weight, bias = parameters[-1]
            logits = jax.nn.log_softmax(h @ weight + bias)
            return -jnp.take_along_axis(logits, labels[:, None], 1).mean()

        def step(parameters):
            loss, gradients = jax.value_and_grad(loss_of)(parameters)
            return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients), loss

        compiled = jax.jit(step, donate_argnums=0)
        state = [parameters, None]

        def call():
            state[0], state[1] = compiled(state[0])
            return state[1]

        measure(f"mlp_step_{batch}", call)

    mlp_step(1)
    mlp_step(64)


if __name__ == "__main__":
    main()
