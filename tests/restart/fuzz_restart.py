"""What a checkpoint holds: arrays by name. Saving itself is tested with processes."""

import jax
import numpy as np
from fuzzing import Target, dtypes, make_tests, sizes
from hypothesis import strategies as st

from examples import restart

TARGETS = (
    Target(
        name="restart.arrays_of",
        parameters=st.fixed_dictionaries({"dtype": dtypes, "n": sizes}),
        arrays=lambda p, random: (random.normal(size=(p["n"], 2)) @ [1, 1j],),
        call=lambda p: lambda a: restart.arrays_of({"a": [a, a]}),
        reference=lambda p, a: {"['a'][0]": a, "['a'][1]": a},
        specs=lambda p: (jax.P("x"),),
        given=("jax", "sharded", "replicated"),
        axes=("x",),
        rounding=0,
        check=lambda p, arrays, result, wanted: [
            np.testing.assert_array_equal(result[name], wanted[name]) for name in wanted
        ],
    ),
)

test_cases, test_draws = make_tests(TARGETS)
