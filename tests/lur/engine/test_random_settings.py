"""Random settings of `lur.run` against one numpy loop, from bfloat16 to float64.

The tolerance follows from the dtype: about ten roundings in each of the R K local steps and in the round around them,
of half a unit in the last place each, which may add up, relative to the largest number of each kind. Momentum of 0.9
keeps up to ten past errors. Adam divides by sqrt(v) + 1e-3 and so multiplies an error by up to a thousand; with 8 or 11
bits nothing would remain to compare, so half precision is tried with the other optimisers.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lur
from tests.lur import numpy_loop
from tests.lur.numpy_loop import FACTORIES, random_store

DTYPES = (jnp.bfloat16, np.float16, np.float32, np.float64)
HALF, ADAPTIVE = DTYPES[:2], ("adam", "adamw")
LAYOUTS = ("vmap", "sequential", "chunked:2", "chunked:3", "sharded", "sharded:vmap", "auto")


def random_setting(rng):
    """A setting of everything that the numbers may depend on."""
    setting = {
        "sizes": tuple(int(n) for n in rng.integers(1, 7, rng.integers(1, 6))),
        "B": int(rng.integers(1, 4)),
        "rounds": int(rng.integers(1, 4)),
        "seed": int(rng.integers(2**32)),
        "epochs": int(rng.integers(1, 3)) if rng.random() < 0.4 else None,
        "prox": float(rng.choice([0.0, 0.3])),
        "loss_on": str(rng.choice(["first", "all"])),
        "client": str(rng.choice(["sgd", "sgd", "sgd", *FACTORIES])),
        "server": str(rng.choice(["sgd", *FACTORIES])),
        "send": rng.choice([None, "gradients", "loss_gradients", "delta"]),
        "weighting": str(rng.choice(["uniform", "examples"])),
        "layout": str(rng.choice(LAYOUTS)),
        "data": rng.choice([None, "host"]),
        "cut": bool(rng.random() < 0.3),
        "eta": float(rng.uniform(0.1, 1)),
        "dtype": DTYPES[rng.choice(len(DTYPES), p=(0.1, 0.1, 0.4, 0.4))],
    }
    if setting["dtype"] in HALF:
        setting |= {name: "nesterov" for name in ("client", "server") if setting[name] in ADAPTIVE}
    setting["M"] = int(rng.integers(1, len(setting["sizes"]) + 1))
    K = int(rng.integers(1, 6))
    if setting["epochs"] is not None:
        K = -(-setting["epochs"] * max(setting["sizes"]) // setting["B"])
    if setting["send"] is None:
        setting["send"] = "gradients" if setting["client"] == "sgd" else "delta"
        setting["default_send"] = True
    is_equal = setting["epochs"] is None or len(set(setting["sizes"])) == 1
    thetas = [np.ones(K)]
    if setting["send"] != "delta":
        thetas.append(np.full(K, 0.5))
        if is_equal:
            thetas += [np.eye(K)[-1], np.append(rng.choice([0.0, 0.5, 2.0], K - 1), 1.0)]
    setting["theta"] = tuple(float(weight) for weight in thetas[rng.integers(len(thetas))])
    per_step = rng.random() < 0.3
    setting["gamma"] = rng.uniform(0, 0.2, K) if per_step else float(rng.choice([0.0, 0.05, 0.2]))
    return setting


def disagreement(setting, w):
    """Run the setting with `lur.run` and with the numpy loop; the largest difference, relative to the numbers."""
    s = setting
    K, dtype = len(s["theta"]), s["dtype"]
    store = random_store(s["seed"], s["sizes"], len(w), dtype)
    options = {} if s.get("default_send") else {"send": s["send"]}
    method = lur.local_update(
        numpy_loop.loss, s["theta"], FACTORIES[s["server"]], client=FACTORIES[s["client"]], prox=s["prox"],
        loss_on=s["loss_on"], **options,
    )  # fmt: skip
    state, parts = method.init(w.astype(dtype), s["gamma"], s["eta"]), []
    for rounds in (1,) * s["rounds"] if s["cut"] else (s["rounds"],):
        state, infos = lur.run(
            method, state, store, rounds=rounds, clients_per_round=s["M"], batch_size=s["B"], seed=s["seed"],
            layout=s["layout"], epochs=s["epochs"], weighting=s["weighting"], data=s["data"], capacity=4,
        )  # fmt: skip
        parts.append(infos)
    infos = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    double = random_store(s["seed"], s["sizes"], len(w))

    def client(w, batches):
        settings = {name: s[name] for name in ("send", "prox", "loss_on")}
        return numpy_loop.client(w, batches, s["gamma"], s["theta"], optimizer=s["client"], **settings)

    sampled = {name: s[name] for name in ("rounds", "M", "B", "seed", "epochs", "weighting", "eta", "server")}
    expected, columns = numpy_loop.run(double, w, client, K=K, **sampled)
    found = (state.params, infos.loss, infos.client_losses, infos.client_norms, infos.update_norm)
    assert state.params.dtype == dtype
    assert all(leaf.dtype in (dtype, np.float32) for leaf in found[1:])
    return max(
        float(np.max(np.abs(np.asarray(one, np.float64) - other)) / (1e-3 + np.max(np.abs(other))))
        for one, other in zip(found, (expected, *columns), strict=True)
    )


def tolerance(setting):
    """The largest disagreement that rounding can explain, see above."""
    optimizers = {setting["client"], setting["server"]}
    growth = 1000 if optimizers & {*ADAPTIVE} else 1 if optimizers == {"sgd"} else 10
    steps = setting["rounds"] * len(setting["theta"])
    return 5 * (1 + steps) * growth * float(jnp.finfo(setting["dtype"]).eps)


def attack(seed, count):
    """How far `count` random settings are off, relative to their tolerances, the worst first."""
    rng, results = np.random.default_rng(seed), []
    for _ in range(count):
        setting = random_setting(rng)
        with jax.enable_x64(setting["dtype"] == np.float64):
            off = disagreement(setting, rng.normal(size=2))
        results.append((off / tolerance(setting), setting))
    return sorted(results, key=lambda result: -result[0])


@pytest.mark.promote
@pytest.mark.parametrize("seed", range(3))
def test_random_settings_are_the_numpy_loop(seed):
    worst, setting = attack(seed, 3)[0]
    assert worst < 1, setting


@pytest.mark.full
@pytest.mark.promote
@pytest.mark.parametrize("seed", range(3, 53))
def test_many_random_settings_are_the_numpy_loop(seed):
    results = attack(seed, 10)
    print([(round(off, 4), s["client"], s["server"], jnp.dtype(s["dtype"]).name) for off, s in results])
    worst, setting = results[0]
    assert worst < 1, setting
