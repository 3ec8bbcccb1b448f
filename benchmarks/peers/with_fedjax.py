"""FedJAX: its federated averaging, compiled by XLA; the models written in JAX, with the weights
that torch's models begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from work import CLIENTS, parse


def models() -> dict[str, Callable[[Any, Any], Any]]:
    """Return the models: parameters in torch's order and shapes, and a batch -> scores."""
    import jax
    from jax import lax
    from jax import numpy as jnp

    def linear(x: Any, weight: Any, bias: Any) -> Any:
        return x @ weight.T + bias

    def convolved(x: Any, weight: Any, bias: Any) -> Any:
        out = jax.nn.relu(
            lax.conv_general_dilated(
                x, weight, (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW")
            )
            + bias[:, None, None]
        )
        return lax.reduce_window(out, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def recurrent(x: Any, w_in: Any, w_hidden: Any, b_in: Any, b_hidden: Any) -> Any:
        inputs = x @ w_in.T + (b_in + b_hidden)

        def step(state: Any, given: Any) -> Any:
            hidden, cell = state
            i, f, g, o = jnp.split(given + hidden @ w_hidden.T, 4, axis=-1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (hidden, cell), hidden

        zeros = jnp.zeros((x.shape[0], w_hidden.shape[1]), x.dtype)
        return lax.scan(step, (zeros, zeros), inputs.swapaxes(0, 1))[1].swapaxes(0, 1)

    def mlp(p: Any, x: Any) -> Any:
        return linear(jax.nn.relu(linear(jax.nn.relu(linear(x, *p[:2])), *p[2:4])), *p[4:])

    def cnn(p: Any, x: Any) -> Any:
        flat = convolved(convolved(x, *p[:2]), *p[2:4]).reshape(len(x), -1)
        return linear(jax.nn.relu(linear(flat, *p[4:6])), *p[6:])

    def lstm(p: Any, x: Any) -> Any:
        return linear(recurrent(recurrent(p[0][x], *p[1:5]), *p[5:9])[:, -1], *p[9:])

    return {"logistic": lambda p, x: linear(x, *p), "mlp": mlp, "cnn": cnn, "lstm": lstm}


def mixed(forward: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a forward pass in bfloat16 with float32 parameters and scores, by haiku's
    library of mixed precision."""
    import jmp

    policy = jmp.get_policy("params=float32,compute=bfloat16,output=float32")

    def rounded(p: Any, x: Any) -> Any:
        return policy.cast_to_output(forward(*policy.cast_to_compute((p, x))))

    return rounded


def main() -> None:
    run = parse()
    import jax

    # FedJAX uses the name that newer versions of JAX have dropped
    jax.tree_map = jax.tree_util.tree_map
    import fedjax
    import optax
    from fedjax.algorithms import fed_avg

    forward = models()[run.load.name]
    if run.precision == "bfloat16":
        forward = mixed(forward)
    steps = 0

    class Counted(fedjax.ClientDataset):
        def shuffle_repeat_batch(self, *args: Any, **options: Any) -> Iterator[Any]:
            nonlocal steps
            for batch in super().shuffle_repeat_batch(*args, **options):
                steps += 1
                yield batch

    def loss(params: Any, batch: Any, _: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(
            forward(params, batch["x"]), batch["y"]
        ).mean()

    stored = np.load(run.data / f"{run.load.name}-weights.npz")
    parts = [Counted(dict(zip("xy", run.arrays(k), strict=True))) for k in range(CLIENTS)]
    hparams = fedjax.ShuffleRepeatBatchHParams(batch_size=run.batch, num_epochs=run.epochs)
    with fedjax.for_each_client_backend("jit"):
        sgd = fedjax.optimizers.sgd
        algorithm = fed_avg.federated_averaging(jax.grad(loss), sgd(run.lr), sgd(1.0), hparams)
        state = algorithm.init([jax.numpy.asarray(stored[name]) for name in stored.files])
        for round_index in range(run.rounds):
            keys = jax.random.split(jax.random.PRNGKey(round_index), CLIENTS)
            state, _ = algorithm.apply(state, list(zip(range(CLIENTS), parts, keys, strict=True)))
            jax.block_until_ready(state.params)
            run.mark()
    run.finish(steps, [np.asarray(values) for values in state.params])


if __name__ == "__main__":
    main()
