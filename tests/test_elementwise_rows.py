"""The table of elementwise functions: what its rows take and refuse, and the functions made of them."""

import doctest
import inspect
import types

import jax
import numpy as np
import pytest

from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api import _elementwise as table
from jaxchunk.array_api._elementwise import ELEMENTWISE, OPERATORS
from jaxchunk.array_api._row import TAKES
from tests.helpers.elementwise import run

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, at the values of interest


def representative(kinds):
    return [name for name, dtype in dt.DTYPES.items() if dtype.kind in TAKES[kinds]]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_body_takes_every_dtype_of_its_row(name):
    row = ELEMENTWISE[name]
    for dtype in representative(row.kinds):
        with jax.enable_x64(True):
            out = jax.eval_shape(row.body, *[jax.ShapeDtypeStruct((2,), dtype)] * row.nin)
        assert out.dtype == row.result(np.dtype(dtype)), dtype
        assert out.shape == (2,)


def primitives(jaxpr):
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from primitives(inner)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_bodies_call_nothing_that_is_jitted_itself(name):
    row = ELEMENTWISE[name]
    for dtype in representative(row.kinds):
        with jax.enable_x64(True):
            found = set(primitives(jax.make_jaxpr(row.body)(*[np.ones(2, dtype)] * row.nin).jaxpr))
        assert not found & {"pjit", "jit", "custom_jvp_call", "pure_callback"}, dtype


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_rows_refuse_other_dtypes(name):
    row = ELEMENTWISE[name]
    for dtype in dt.DTYPES:
        operands = tuple(np.ones(2, dtype) for _ in range(row.nin))
        if dtype in representative(row.kinds):
            assert row.operand_dtype(operands) == np.dtype(dtype)
        else:
            with pytest.raises(TypeError, match=rf"{name} .*{row.kinds}.*{dtype}"):
                row.operand_dtype(operands)


BINARY_ROWS = [name for name, row in ELEMENTWISE.items() if row.nin == 2]


@pytest.mark.parametrize("name", BINARY_ROWS)
def test_rows_take_a_scalar_on_either_side(name):
    row = ELEMENTWISE[name]
    dtype = representative(row.kinds)[-1]
    scalar = True if dtype == "bool" else 2
    x = np.ones(2, dtype)
    assert row.operand_dtype((x, scalar)) == row.operand_dtype((scalar, x)) == np.dtype(dtype)
    with pytest.raises(TypeError, match="at least one array"):
        row.operand_dtype((scalar, scalar))
    for stranger in ("two", [1, 2], None):
        with pytest.raises(TypeError, match=rf"{name} takes arrays and Python scalars"):
            row.operand_dtype((x, stranger))


def test_rows_of_one_operand_take_arrays_only():
    for scalar in (2.0, 1, None, [1.0]):
        with pytest.raises(TypeError, match="sqrt takes an array"):
            ELEMENTWISE["sqrt"].operand_dtype((scalar,))


def test_rows_promote_and_say_where_they_cannot():
    add = ELEMENTWISE["add"]
    assert add.operand_dtype((np.ones(2, "float32"), 1j)) == np.dtype("complex64")
    assert add.operand_dtype((np.ones(2, "int8"), np.ones(2, "uint8"))) == np.dtype("int16")
    with pytest.raises(TypeError, match=r"add: .*int32.*float32.*astype"):
        add.operand_dtype((np.ones(2, "int32"), np.ones(2, "float32")))
    with pytest.raises(OverflowError, match=r"add: 300.*int8"):
        add.operand_dtype((np.ones(2, "int8"), 300))


def test_scalars_without_a_meaning():
    for name in ("bitwise_left_shift", "bitwise_right_shift", "pow"):
        with pytest.raises(ValueError, match=rf"{name}.*-1"):
            ELEMENTWISE[name].operand_dtype((np.ones(2, "int8"), -1))
    assert ELEMENTWISE["pow"].operand_dtype((np.ones(2), -1)) == np.dtype("float64")


def test_clip_keeps_the_dtype_of_x():
    clip = ELEMENTWISE["clip"]
    assert clip.operand_dtype((np.ones(2, "int16"), np.ones(2, "int8"), 3)) == np.dtype("int16")
    with pytest.raises(TypeError, match=r"clip.*int8.*int16"):
        clip.operand_dtype((np.ones(2, "int8"), np.ones(2, "int16"), 3))


PARAMETERS = {1: ["x"], 2: ["x1", "x2"], 3: ["x", "min", "max"]}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_public_functions(name):
    row, function = ELEMENTWISE[name], getattr(table, name)
    parameters = list(inspect.signature(function).parameters.values())
    assert (function.__name__, function.__qualname__, function.__module__) == (name, name, "jaxchunk.array_api")
    assert [p.name for p in parameters] == PARAMETERS[row.nin]
    for p in parameters:
        optional = p.name in ("min", "max")
        assert p.kind is (p.POSITIONAL_OR_KEYWORD if optional else p.POSITIONAL_ONLY)
        assert p.default is (None if optional else p.empty)
        assert p.annotation is not p.empty
    for section in (row.summary, "Parameters\n", "Returns\n", "Raises\n", "Examples\n"):
        assert section in function.__doc__


class Eager:
    """Just enough of an array for the examples: a NumPy array with `compute`."""

    def __init__(self, value):
        self.value = np.asarray(value)

    def compute(self):
        return self.value


def eager(name):
    row = ELEMENTWISE[name]

    def function(*operands):
        values = tuple(x.value if isinstance(x, Eager) else x for x in operands)
        dtype = row.operand_dtype(values)
        return Eager(run(name, *(np.asarray(x).astype(dtype) for x in values)))

    return function


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_examples(name):
    functions = {n: eager(n) for n in ELEMENTWISE}
    xp = types.SimpleNamespace(**functions, asarray=Eager, pi=np.pi, e=np.e, inf=np.inf, nan=np.nan)
    example = doctest.DocTestParser().get_examples(getattr(table, name).__doc__)[-1]
    assert repr(eval(example.source, {"xp": xp})) == example.want.strip()


def test_operators_name_every_special_method():
    unary = {"abs", "invert", "neg", "pos"}
    comparisons = {"eq", "ne", "lt", "le", "gt", "ge"}
    arithmetic = {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"}
    assert set(OPERATORS) == {f"__{op}__" for op in unary | comparisons | arithmetic}
    for op, row in OPERATORS.items():
        assert ELEMENTWISE[row.name] is row
        assert row.nin == (1 if op.strip("_") in unary else 2)


def test_the_table_is_complete():
    assert len(ELEMENTWISE) == 67
    assert all(row.name == name for name, row in ELEMENTWISE.items())
