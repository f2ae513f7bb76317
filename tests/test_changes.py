"""Of each assertion what it claims is changed, and what it is given is not."""

import changes
import pytest
from book.page import Page

CHANGES = {  # an assertion -> what stands in its place
    "assert a == 1": ["assert a != 1", "assert a == 2"],
    "assert a(1)[2] == b[3]": ["assert a(1)[2] != b[3]"],
    "assert a.counts == {'all-sum': 9}": [
        "assert a.counts != {'all-sum': 9}",
        "assert a.counts == {'all-sum': 8}",
        "assert a.counts == {'allx-sum': 9}",
        "assert a.counts == {'all-sumx': 9}",
    ],
    "assert a.spec == jax.P('x', None)": [
        "assert a.spec != jax.P('x', None)",
        "assert a.spec == jax.P('xx', None)",
    ],
    "assert '13' in f(7)": ["assert '13' not in f(7)", "assert '14' in f(7)"],
    "assert 0 <= a < 8": ["assert 0 > a < 8", "assert 0 <= a >= 8"],
    "assert a and b > 1": ["assert not a and b > 1", "assert a and b <= 1"],
    "assert (x == f(7)).all()": [
        "assert (x != f(7)).all()",
    ],
    "assert all((x == y * 2 for x, y in z[1]))": [
        "assert all((x != y * 2 for x, y in z[1]))",
        "assert all((x == y * 3 for x, y in z[1]))",
    ],
    "assert any(x == 3 for x in y)": ["assert not any((x == 3 for x in y))"],
    "assert a.dtype == jnp.float32": [
        "assert a.dtype != jnp.float32",
        "assert a.dtype == jnp.int32",
    ],
    "assert type(e) is ValueError": [
        "assert type(e) is not ValueError",
        "assert type(e) is KeyError",
    ],
    "np.testing.assert_allclose(a.sum(0), b / 4, rtol=1e-6)": [
        "np.testing.assert_allclose(a.sum(0), b / 5, rtol=1e-06)",
        "np.testing.assert_allclose(a.sum(0), 1 + 2 * (b / 4), rtol=1e-06)",
    ],
}


@pytest.mark.parametrize("claim", CHANGES)
def test_a_claim_is_changed_in_each_of_its_parts(claim):
    found = changes.of_code(f"x = 5\nfor y in z:\n    {claim}")
    assert sorted(text for text, _ in found) == sorted(CHANGES[claim])
    for text, code in found:
        assert code == f"x = 5\nfor y in z:\n    {text}"


def test_what_every_process_runs_is_changed_too():
    ((_, code),) = changes.of_code("%%every 2\nassert a")
    assert code == "%%every 2\nassert not a"


def test_a_sample_is_the_same_for_a_seed_and_never_empty(tmp_path):
    cell = "```{code-cell}\n:check: so\nassert a == [1, 2, 3]\n```\n"
    page = Page(tmp_path / "a.md", tmp_path, source=cell * 5)
    samples = [changes.sample(page, 10, seed) for seed in "aab"]
    assert samples[0] == samples[1] != samples[2]
    assert sum(len(found) for found in samples[0].values()) == 2
    assert sum(len(found) for found in changes.sample(page, 0.1, 0).values()) == 1
    assert sum(len(found) for found in changes.sample(page, 100, 0).values()) == 20
    assert changes.sample(Page(page.file, tmp_path, source=""), 100, 0) == {}
