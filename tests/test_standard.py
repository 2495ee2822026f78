"""The namespace against the table of the standard: every name, every signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import jaxchunk.array_api as xp
from tests.helpers import standard

# What our functions take beside the standard's parameters.
OURS = {"chunks"}


def function(name: str) -> Callable[..., Any]:
    """A function of the namespace, of an extension, or a method of the info object."""
    owner: Any = xp
    if name.startswith("info."):
        owner, name = xp.__array_namespace_info__(), name.removeprefix("info.")
    found: Callable[..., Any] = attrgetter(name)(owner)
    return found


def check_signature(found: inspect.Signature, wanted: inspect.Signature) -> None:
    """The same parameters of the same kinds with the same defaults, ours only by keyword, and all annotated."""
    expected = [p for p in wanted.parameters.values() if p.name != "self"]
    ours = [p for p in found.parameters.values() if p.name in OURS]
    assert all(p.kind == Parameter.KEYWORD_ONLY and p.default is None for p in ours)
    same = [p for p in found.parameters.values() if p.name not in OURS | {"self"}]
    assert [(p.name, p.kind.name) for p in same] == [(p.name, p.kind.name) for p in expected]
    for mine, theirs in zip(same, expected, strict=True):
        assert mine.default == theirs.default, mine.name
        assert isinstance(mine.default, bool) == isinstance(theirs.default, bool), mine.name
        assert mine.annotation is not Parameter.empty, mine.name
    assert found.return_annotation is not inspect.Signature.empty


def test_the_table_is_whole() -> None:
    assert {chapter: len(functions) for chapter, functions in standard.CHAPTERS.items()} == standard.COUNTS
    assert len(standard.FUNCTIONS) == 180


def test_version() -> None:
    assert xp.__array_api_version__ == standard.VERSION
    assert xp.zeros(1).__array_namespace__(api_version=standard.VERSION) is xp


@pytest.mark.parametrize("name", standard.FUNCTIONS)
def test_function(name: str) -> None:
    found = function(name)
    assert found.__name__ == name.rpartition(".")[2]
    assert found.__doc__
    check_signature(inspect.signature(found), standard.FUNCTIONS[name])


@pytest.mark.parametrize("name", standard.METHODS)
def test_method(name: str) -> None:
    check_signature(inspect.signature(getattr(xp.Array, name)), standard.METHODS[name])


@pytest.mark.parametrize("name", standard.PROPERTIES)
def test_property(name: str) -> None:
    found = getattr(xp.Array, name)
    assert isinstance(found, property)
    assert found.fset is None
    assert found.fget is not None
    assert "return" in found.fget.__annotations__


@pytest.mark.parametrize("name", standard.FIELDS)
def test_named_results(name: str) -> None:
    given = xp.eye(2) if "." in name else xp.arange(2)
    assert function(name)(given)._fields == tuple(standard.FIELDS[name].split())


def test_exported() -> None:
    names = {name.partition(".")[0] for name in standard.FUNCTIONS} - {"info"}
    missing = (names | {*standard.CONSTANTS, *standard.DTYPES, "__array_api_version__"}) - set(xp.__all__)
    assert not missing


def test_constants() -> None:
    assert (xp.e, xp.pi, xp.inf, xp.newaxis) == (float(np.e), float(np.pi), float("inf"), None)
    assert np.isnan(xp.nan)
    assert {type(value) for value in (xp.e, xp.pi, xp.inf, xp.nan)} == {float}


@pytest.mark.parametrize("name", standard.DTYPES)
def test_dtype(name: str) -> None:
    dtype = getattr(xp, name)
    assert [other for other in standard.DTYPES if getattr(xp, other) == dtype] == [name]
    assert xp.zeros(1, dtype=dtype).dtype == dtype
