"""From nodes to stages: what is computed together, and what is materialised in between.

An *anchor* is a node whose array exists at some point: a result that was asked for, a fold whose
result is used in another space than it was made in, what a concatenation or reshape reads. All
else is computed where it is used. Stages over the same space that read the same source share a
pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from jaxchunk.graph.node import Node, postorder
from jaxchunk.graph.primitives import Affine, AxisMap, Blockwise, Move, Source
from jaxchunk.lower.program import Fold, Program
from jaxchunk.plan.build import Builder, is_elementwise

# XLA's compile time grows faster than a program's length.
LONGEST_CHAIN = 120
# Operations an element that take as long as writing the element to disk and reading it.
COSTLY = 40
LARGEST_PROGRAM = 300
# Compiling takes memory for every fold: 60 MiB for a kernel of 40 sums, 250 for one of 80 standard deviations.
MOST_STATES = 32


@dataclass
class Draft:
    """A stage before it is tiled.

    Attributes
    ----------
    roots
        The anchors it makes, each with the group (dropped axes, or None for the step) and the
        number of its value there.
    exact, ordered
        See :class:`jaxchunk.graph.primitives.Blockwise`.
    """

    space: tuple[int, ...]
    builder: Builder
    level: int
    roots: list[tuple[Node, tuple[int, ...] | None, int]] = field(default_factory=list)
    exact: Node | None = None
    ordered: int | None = None
    whole: tuple[int, ...] = ()

    def reads(self) -> set[Node]:
        """Every node that leaves of this stage are views of, pieces resolved."""
        found: set[Node] = set()
        groups = self.builder.group_leaves.values()
        for node, _ in [*self.builder.leaves, *(leaf for leaves in groups for leaf in leaves)]:
            found |= bases(node)
        return found


def bases(node: Node) -> set[Node]:
    """What reading a leaf touches: itself, or through pieces and views what they are made of."""
    found: set[Node] = set()
    stack = [node]
    while stack:
        top = stack.pop()
        if isinstance(top.op, Affine | Move) and top.value is None:
            stack.extend(top.operands)
        else:
            found.add(top)
    return found


def _beneath_affines(node: Node) -> Node:
    while isinstance(node.op, Affine) and node.value is None:
        (node,) = node.operands
    return node


def exists(node: Node) -> bool:
    return node.value is not None or isinstance(node.op, Source)


def stages(
    roots: Iterable[Node], wishes: Iterable[Node] = (), met: Collection[Node] = ()
) -> tuple[list[Draft], set[Node]]:
    """The stages that make the roots, in an order in which each reads only what earlier ones made.

    `wishes` are nodes that become results as well, where a stage computes them anyway; `met` are
    those that an earlier run has met. The second result are the nodes at which chains were cut.
    """
    roots = list(dict.fromkeys(roots))
    wanted = set(roots)
    order = list(postorder(roots, stop=exists))
    cuts = _cuts(roots, order, met)
    anchors = _anchors(roots, order, cuts)
    levels: dict[Node, int] = {}
    drafts: list[Draft] = []
    for node in order:
        if exists(node) or (node not in anchors and node not in wanted):
            continue
        draft = draft_of(node, anchors)
        draft.level = max((levels[base] + 1 for base in draft.reads() if base in levels), default=0)
        levels[node] = draft.level
        if not any(_join(old, node, draft, anchors) for old in drafts):
            drafts.append(draft)
    for node in wishes:
        if node not in anchors and not exists(node) and isinstance(node.op, Blockwise):
            draft = draft_of(node, anchors)
            draft.level = max((levels[base] + 1 for base in draft.reads() if base in levels), default=0)
            any(_join(old, node, draft, anchors) for old in drafts)
    drafts.sort(key=lambda draft: draft.level)
    return drafts, cuts


def _cuts(roots: list[Node], order: list[Node], met: Collection[Node]) -> set[Node]:
    """Where long chains are cut, so that their values are kept.

    A loop's values are met run after run: cut at one that several operations use, as soon as
    computing it again costs more than writing and reading it. Any other chain is cut where its
    kernel would take too long to compile.
    """
    cuts: set[Node] = set()
    depth: dict[Node, int] = {}
    cost: dict[Node, float] = {}
    users = Counter(operand for node in order for operand in set(node.operands))
    for node in order:
        below = [o for o in node.operands if o in depth and o not in cuts]
        depth[node] = 1 + max((depth[o] for o in below), default=0)
        cost[node] = getattr(node.op, "flops", 0.0) + max((cost[o] for o in below), default=0.0)
        again = node in met and users[node] > 1 and cost[node] > COSTLY
        if (again or depth[node] > LONGEST_CHAIN) and is_elementwise(node) and node not in roots:
            cuts.add(node)
    return cuts


def _anchors(roots: list[Node], order: list[Node], cuts: set[Node]) -> set[Node]:
    # A view that is asked for is made, but who else uses it looks through it.
    anchors = {node for node in map(_beneath_views, roots) if not isinstance(node.op, Affine)}
    views = {root for root in roots if isinstance(root.op, Affine)}
    anchors |= cuts
    for node in order:
        if isinstance(node.op, Move):
            anchors.update(o for o in map(_beneath_affines, node.operands) if not isinstance(o.op, Move) or exists(o))
        op = node.op
        if isinstance(op, Blockwise) and (op.exact or op.scanner is not None or op.whole):
            anchors.add(node)
    # Folds: computed within an epilogue where one space serves for all, else materialised. Making
    # one an anchor takes it out of other epilogues, so go on until nothing changes.
    while True:
        found: set[Node] = set()
        for node in order:
            if (node in anchors or node in views) and not exists(node):
                found |= _stray_folds(node, anchors)
        if not found - anchors:
            return {a for a in anchors if not exists(a)}
        anchors |= found


def _beneath_views(node: Node) -> Node:
    """A root that is a view of something computed: that is made, and the view is read from it."""
    while isinstance(node.op, Affine) and node.value is None:
        below = node.operands[0]
        if below.value is not None or is_elementwise(below) or not isinstance(below.op, Affine | Blockwise):
            return node
        node = below
    return node


def _inlined_folds(anchor: Node, anchors: set[Node]) -> tuple[list[Node], set[Node]]:
    """Folds that an anchor's expression reaches: only at the anchor's own index, and in other ways."""
    same, shifted = {anchor}, set()
    folds: list[Node] = []
    region = list(postorder([anchor], stop=lambda n: exists(n) or (n is not anchor and (n in anchors or _is_fold(n)))))
    for node in reversed(region):  # users before operands
        if node is not anchor and (node in anchors or exists(node)):
            continue
        if _is_fold(node):
            folds.append(node)
            continue
        for i, operand in enumerate(node.operands):
            if node in same and _same_index(node, i):
                same.add(operand)
            if node in shifted or not _same_index(node, i):
                shifted.add(operand)
    return [f for f in folds if f not in shifted], {f for f in folds if f in shifted}


def _same_index(node: Node, i: int) -> bool:
    """Whether an operand is read at the very index that the result is for."""
    op, operand = node.op, node.operands[i]
    if isinstance(op, Affine):
        return operand.shape == node.shape and op.maps == tuple(AxisMap(a) for a in range(node.ndim))
    if not isinstance(op, Blockwise) or not is_elementwise(node):
        return False
    return op.maps[i] == tuple(range(node.ndim)) and operand.shape == node.shape


def _is_fold(node: Node) -> bool:
    return isinstance(node.op, Blockwise) and node.op.reducer is not None and node.value is None


def _stray_folds(anchor: Node, anchors: set[Node]) -> set[Node]:
    """Folds that an anchor's stage can't compute in its epilogue."""
    if _is_fold(anchor) or not (is_elementwise(anchor) or isinstance(anchor.op, Affine)):
        return _folds_below(anchor, anchors)
    here, stray = _inlined_folds(anchor, anchors)
    kept = _one_space(here)
    stray |= {fold for fold in here if fold not in kept}
    return stray.union(*(_folds_below(fold, anchors) for fold in kept))


def _folds_below(node: Node, anchors: set[Node]) -> set[Node]:
    """Folds that the operands of a fold reach: they are done before it begins."""
    found: set[Node] = set()
    for operand in node.operands:
        if operand not in anchors and not exists(operand):
            here, elsewhere = _inlined_folds(operand, anchors)
            found |= elsewhere | set(here)
    return found


def _one_space(folds: list[Node]) -> list[Node]:
    """The folds that can share a stage: those over the space of the largest one."""
    if not folds:
        return []

    def signature(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
        assert isinstance(node.op, Blockwise)
        return node.op.space, node.op.dropped

    size = {fold: _size(signature(fold)[0]) for fold in folds}
    largest = max(folds, key=lambda fold: size[fold])
    return [fold for fold in folds if signature(fold) == signature(largest)]


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def draft_of(node: Node, anchors: set[Node] | None = None) -> Draft:
    """The stage of one anchor."""
    anchors = anchors or set()
    folds = [node] if _is_fold(node) else _epilogue_folds(node, anchors)
    op = folds[0].op if folds else node.op
    space = op.space if isinstance(op, Blockwise) and (folds or not is_elementwise(node)) else node.shape
    draft = Draft(space, Builder(space, anchors), 0)
    _add_root(draft, node, folds)
    return draft


def _epilogue_folds(node: Node, anchors: set[Node]) -> list[Node]:
    if not (is_elementwise(node) or isinstance(node.op, Affine)):
        return []
    here, _ = _inlined_folds(node, anchors)
    return _one_space(here)


def _add_root(draft: Draft, node: Node, folds: list[Node]) -> None:
    builder, op = draft.builder, node.op
    if folds:
        first = folds[0].op
        assert isinstance(first, Blockwise)
        kept = first.kept
        maps = tuple(AxisMap(a) for a in kept)
        for fold in folds:
            builder.fold(fold)
        # The fold itself, or the elementwise operations on it, are the group's epilogue.
        builder_anchors = builder.anchors
        builder.anchors = builder_anchors - set(folds)
        number = builder.value(node, maps, own=True, dropped=first.dropped)
        builder.anchors = builder_anchors
        builder.program.group(first.dropped).outputs.append(number)
        draft.roots.append((node, first.dropped, number))
        return
    maps = tuple(AxisMap(a) for a in range(node.ndim))
    if isinstance(op, Blockwise) and op.scanner is not None:
        number = builder.scan(node)
        draft.ordered = op.ordered
    elif isinstance(op, Blockwise) and (op.exact or op.whole):
        number = builder.whole(node)
        draft.exact = node if op.exact else None
        draft.whole = op.whole
    else:
        number = builder.value(node, maps, own=True)
    builder.program.outputs.append(number)
    draft.roots.append((node, None, number))


def _join(old: Draft, node: Node, new: Draft, anchors: set[Node]) -> bool:
    """Compute an anchor in an earlier stage of its level, where that shares a pass over a source."""
    plain = old.exact is None and new.exact is None and old.ordered is None and new.ordered is None
    if not plain or old.level != new.level or old.space != new.space or old.whole or new.whole:
        return False
    if old.builder.program.direct != new.builder.program.direct:
        return False
    a, b = old.builder.program, new.builder.program
    if a.size + b.size > LARGEST_PROGRAM or _states(a) + _states(b) > MOST_STATES:
        return False
    if any(f.reducer.contracts for f in (*a.folds, *b.folds)) and not _same_folds(a.folds, b.folds):
        return False
    mine, theirs = old.reads(), new.reads()
    if mine and theirs and not mine & theirs:
        return False
    if any(made in theirs for made, _, _ in old.roots):
        return False
    _add_root(old, node, [node] if _is_fold(node) else _epilogue_folds(node, anchors))
    return True


def _states(program: Program) -> int:
    """How many arrays the folds of a program go on with from tile to tile."""
    return sum(len(fold.reducer.state_dtypes(fold.dtypes)) for fold in program.folds)


def _same_folds(a: list[Fold], b: list[Fold]) -> bool:
    return {f.reducer.key for f in a} == {f.reducer.key for f in b}
