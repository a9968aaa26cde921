"""The page of the API lists every public name, with what it gives."""

import importlib.util
from pathlib import Path

import pytest

import dalembert as da


@pytest.fixture(scope="module")
def hook():
    """docs/api_hook.py, which writes the page while the documentation is built."""
    path = Path(__file__).parents[2] / "docs" / "api_hook.py"
    spec = importlib.util.spec_from_file_location("api_hook", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_listed_once(hook):
    """Types are looked up by their names, which have to be there when nothing is being checked."""
    listing = hook._listing()
    for name in hook._public():
        assert listing.count(f"heading: '{name}'\n") == 1, name
    assert "da.plasma.vlasov_poisson" in hook._public()


def test_a_type_that_only_checkers_see_is_an_error(hook):
    def promising() -> "Nothing":  # noqa: F821
        return da.midpoint()

    with pytest.raises(NameError, match="Nothing"):
        list(hook._results(promising))
