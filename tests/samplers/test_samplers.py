"""The atlas of samplers says what each of them sends, holds and draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from examples import samplers
from examples.communication import measure
from examples.samplers import (
    SAMPLERS,
    SIZE,
    closeness,
    find_sampler,
    on,
    spread,
    survey_all,
    survey_one,
    unknown_samplers,
)

KEY = random.key(7)
QUICK = {"xla_backend_optimization_level": 0}  # as on the page


def test_the_atlas_knows_every_name_of_jax_random_and_can_call_it():
    assert unknown_samplers() == []
    for name in filter(find_sampler, SAMPLERS):
        shape = jax.eval_shape(samplers.draw_by(name), KEY).shape
        assert shape[0] == SIZE, name


def test_a_survey_refuses_a_name_that_it_does_not_know(monkeypatch):
    monkeypatch.setattr(random, "zipf", random.normal, raising=False)
    assert unknown_samplers() == ["zipf"]
    with pytest.raises(ValueError, match="has zipf: add it to SAMPLERS"):
        survey_all(measure)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("normal", {}),
        ("permutation", {}),
        *(
            pytest.param(name, QUICK, marks=pytest.mark.weekly if i % 8 else ())
            for i, name in enumerate(filter(find_sampler, SAMPLERS))
        ),
    ],
)
def test_every_sampler_draws_the_same_on_any_count_of_devices(name, options):
    """On 1, 2 and 4; the page compares 8 with 1."""
    draws = []
    for count in 1, 2, 4:
        with on(count):
            draws.append(spread(name, **options)(KEY))
    alone, *others = draws
    rounded = jnp.issubdtype(alone.dtype, jnp.inexact)
    allowed = {"same", "last bits"} if rounded else {"same"}
    assert {closeness(alone, other) for other in others} <= allowed


def test_an_entry_says_what_a_sampler_does():
    entries = [
        survey_one(name, measure) for name in ("uniform", "poisson", "permutation")
    ]
    uniform, poisson, permutation = entries
    assert (uniform.messages, poisson.messages) == ("none", "1 all-reduce, 1 B")
    assert 3 * uniform.held < uniform.alone
    assert permutation.held > permutation.alone
    assert {entry.values for entry in entries} == {"same"}
    assert uniform.explicit == f"float32[{SIZE}@x]"


def test_a_sampler_without_out_sharding_says_so():
    assert samplers.explicit_type("split") == "no out_sharding"


def test_arrays_that_differ_are_not_the_same():
    one = np.linspace(1, 2, 8, dtype=np.float32)
    assert closeness(one, one.copy()) == "same"
    assert closeness(one, np.nextafter(one, 2)) == "last bits"
    assert closeness(one, one + 0.01) == "different"
    assert closeness(np.arange(3), np.arange(3) + 1) == "different"
    assert closeness(random.key(0), random.key(1)) == "different"
