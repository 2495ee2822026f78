"""The runner of the standard's suite, on small suites made up here; and the setting that cuts small arrays."""

from __future__ import annotations

from pathlib import Path

import pytest

import jaxchunk as jc
import jaxchunk.array_api as xp
from conformance import suite
from conformance.runner import Job, Result, run

OPTIONS = """
def pytest_addoption(parser):
    parser.addoption("--max-examples", type=int)
    parser.addoption("--disable-deadline", action="store_true")
"""


def result_of(folder: Path, tests: str, memory: int = 2**40, shares: int = 1) -> Result:
    """What the runner makes of a suite of one file."""
    (folder / "suite" / "array_api_tests").mkdir(parents=True)
    (folder / "suite" / "conftest.py").write_text(OPTIONS)
    name = suite.SKIPPED_BY_SUITE.partition("::")[0]
    (folder / "suite" / "array_api_tests" / name).write_text("import os, pytest\n" + tests)
    job = Job("jaxchunk.array_api", examples=3, chunks=2, workers=1, memory=memory, deadline=True, shares=shares)
    return run(job, folder / "suite", folder / "out")


def test_all_passed(tmp_path: Path) -> None:
    tests = """
@pytest.mark.parametrize("i", range(9))
def test_passes(i, request):
    assert os.environ["JAXCHUNK_DEFAULT_CHUNKS"] == "2"
    assert os.environ["ARRAY_API_TESTS_VERSION"] == "2025.12"
    assert request.config.getoption("--max-examples") == 3
    assert not request.config.getoption("--disable-deadline")

@pytest.mark.skip(reason="flaky")
@pytest.mark.parametrize("i", range(5))
def test_remainder(i): pass
"""
    result = result_of(tmp_path, tests, shares=2)
    assert result.passed, result.summary()
    assert len(result.tests) == result.collected == 14
    assert len(result.skipped_by_suite) == 5
    assert result.peak > 0
    assert "PASSED: 9 passed, 0 failed, 5 skipped, 0 xfailed, 0 errors, 0 not run" in result.summary()


def test_whatever_did_not_pass(tmp_path: Path) -> None:
    tests = """
def test_passes(): pass
def test_fails(): assert 1 == 2
def test_skips(): pytest.skip("no such name")
@pytest.mark.skip(reason="flaky")
def test_skipped(): pass
@pytest.mark.skip(reason="hard")
@pytest.mark.parametrize("i", range(1))
def test_remainder(i): pass
@pytest.mark.xfail
def test_xfails(): assert False
@pytest.mark.xfail
def test_xpasses(): pass
@pytest.fixture
def broken(): assert False
def test_is_not_set_up(broken): pass
def test_ends_the_process(): os._exit(3)
def test_comes_after(): pass
"""
    result = result_of(tmp_path, tests)
    found = {test["end"].rpartition("::")[2]: test for test in result.tests}
    assert {name: test["outcome"] for name, test in found.items()} == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_skips": "skipped",
        "test_skipped": "skipped",
        "test_remainder[0]": "skipped",
        "test_xfails": "xfailed",
        "test_xpasses": "xfailed",
        "test_is_not_set_up": "failed",
        "test_comes_after": "passed",
    }
    assert result.bad == [test for test in result.tests if test["outcome"] != "passed"]
    assert "1 == 2" in found["test_fails"]["why"]
    (error,) = result.errors
    assert "test_ends_the_process ended its process (3)" in error
    assert not result.passed


def test_what_cannot_be_collected(tmp_path: Path) -> None:
    result = result_of(tmp_path, "import no_such_module")
    assert not result.passed
    assert len(result.errors) == 1


def test_a_process_that_has_grown_is_replaced(tmp_path: Path) -> None:
    tests = """
ran = []
@pytest.mark.parametrize("i", range(3))
def test_it(i):
    ran.append(i)
    assert len(ran) == 1
"""
    result = result_of(tmp_path, tests, memory=1)
    assert result.passed, result.errors
    assert result.restarts == 2


def outcomes(*tests: tuple[str, str, str], collected: int | None = None) -> Result:
    records = [{"end": name, "outcome": outcome, "why": why} for name, outcome, why in tests]
    return Result(records, collected=len(tests) if collected is None else collected)


def test_verdict() -> None:
    good = ("a.py::test_a", "passed", "")
    own = [(f"array_api_tests/{suite.SKIPPED_BY_SUITE}{i}]", "skipped", "flaky") for i in range(6)]
    assert outcomes(good, *own[:5]).passed
    for tests in (
        [],
        [good, *own],
        [good, ("a.py::test_b", "skipped", "flaky")],
        [good, ("a.py::test_b", "xfailed", "")],
    ):
        assert not outcomes(*tests).passed
    assert not outcomes(good, collected=2).passed
    both = outcomes(good)
    both.add(outcomes(good, good))
    assert both.errors == ["processes found 1 and 2 tests"]


def test_lists_of_skips_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(suite.CHECKOUT, str(tmp_path))
    with pytest.raises(SystemExit, match="no checkout"):
        suite.checkout(tmp_path)
    (tmp_path / "array_api_tests").mkdir()
    with pytest.raises(SystemExit, match="submodule"):
        suite.checkout(tmp_path)
    (tmp_path / "array-api" / "src").mkdir(parents=True)
    assert suite.checkout(tmp_path) == tmp_path
    (tmp_path / "xfails.txt").touch()
    with pytest.raises(SystemExit, match="passed over"):
        suite.checkout(tmp_path)


# --- tiny chunks -------------------------------------------------------------------------------


def test_default_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAXCHUNK_DEFAULT_CHUNKS", raising=False)
    assert xp.ones((4, 5)).numblocks == (1, 1)
    monkeypatch.setenv("JAXCHUNK_DEFAULT_CHUNKS", "3")
    assert jc.config.get().default_chunks == 3
    for x in (xp.ones((4, 5)), xp.asarray([[1] * 5] * 4), xp.full((4, 5), xp.asarray(2)), xp.eye(4, 5)):
        assert x.chunks == ((3, 1), (3, 2))
    for x in (xp.arange(7), xp.linspace(0, 1, 7), xp.empty(7)):
        assert x.chunks == ((3, 3, 1),)
    assert xp.ones((4, 5), chunks="auto").numblocks == xp.zeros((4, 5), chunks=-1).numblocks == (1, 1)
    assert xp.ones_like(xp.ones(4, chunks=2)).chunks == ((2, 2),)
    with jc.config.set(default_chunks=2):
        assert xp.ones(4).chunks == ((2, 2),)
    assert xp.asarray(1).chunks == ()


@pytest.mark.parametrize("value", ["0", "-1", "three", "1.5"])
def test_default_chunks_that_are_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXCHUNK_DEFAULT_CHUNKS", value)
    with pytest.raises(ValueError, match="JAXCHUNK_DEFAULT_CHUNKS"):
        xp.ones(3)
    with pytest.raises(TypeError, match="default_chunks='3'"):
        jc.config.set(default_chunks="3")
    with pytest.raises(ValueError, match="default_chunks=0"):
        jc.config.set(default_chunks=0)
