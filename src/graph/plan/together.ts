import type { Dispatch, Operand } from '../../kernels/op.ts'
import { gcd } from '../../util/gcd.ts'
import type { LoweredNode } from './lower.ts'

/** What several runs of a program, each with other inputs and intermediates, need of a dispatch. */
export interface Together {
  /** True if it gives the same in all of them, so that one run does it for all: nothing it reads is a run's own. */
  readonly isOnce: boolean
  /** By binding: whether all runs have one tensor there. */
  readonly isCommon: readonly boolean[]
  /** Workgroups of this dispatch, and of the next one that read what these have made and nothing else does: both run piece by piece. */
  readonly piece?: readonly [own: number, next: number]
}

/** A chain in fewer pieces would leave threads idle. */
const minPieces = 8

/** Where an operand is: an intermediate, which `Memory` stands for, or what a run has for itself or all runs have in common. */
export type OperandPlace<Memory> = Memory | 'own' | 'common'

/**
 * By node and dispatch: what runs that are computed together, dispatch by dispatch, have in common.
 *
 * `usersOf`: how many nodes use an intermediate. `placeOf`: of an operand of the node at a position.
 */
export function togetherOf<Memory extends object>(
  nodes: readonly LoweredNode[],
  usersOf: (memory: Memory) => number,
  placeOf: (lowered: LoweredNode, at: number, operand: Operand) => OperandPlace<Memory>,
): Together[] {
  const all = nodes.flatMap((lowered, at) =>
    lowered.lowering.dispatches.map((dispatch) => ({
      dispatch,
      uses: dispatch.bindings.map(({ access, operand }) => ({
        access,
        place: placeOf(lowered, at, operand),
      })),
    })),
  )
  const own = new Set<Memory>()
  const isOwn = (place: OperandPlace<Memory>) =>
    place === 'own' || (place !== 'common' && own.has(place))
  for (let before = -1; before !== own.size; ) {
    before = own.size
    for (const { uses } of all) {
      const readsOwn = uses.some(({ access, place }) => access !== 'write' && isOwn(place))
      if (!readsOwn) continue
      for (const { access, place } of uses)
        if (access !== 'read' && typeof place === 'object') own.add(place)
    }
  }
  const placeIn = (i: number, operand: Operand): OperandPlace<Memory> | undefined => {
    const { dispatch, uses } = all[i]
    const at = dispatch.bindings.findIndex((binding) => isSame(binding.operand, operand))
    return uses[at]?.place
  }
  const pieces = all.map(({ dispatch: { pieces } }, i) => {
    const next = all[i + 1]?.dispatch
    if (!pieces || !next?.pieces) return undefined
    const made = placeIn(i, pieces.operand)
    if (typeof made !== 'object' || made !== placeIn(i + 1, next.pieces.operand)) return undefined
    if (usersOf(made) !== 2 || !own.has(made)) return undefined
    const elements =
      (pieces.elements / gcd(pieces.elements, next.pieces.elements)) * next.pieces.elements
    const piece = [pieces, next.pieces].map((each) => (elements / each.elements) * each.groups) as [
      number,
      number,
    ]
    if (countOf(next) / piece[1] < minPieces) return undefined
    own.delete(made)
    return piece
  })
  return all.map(({ uses }, i) => ({
    isOnce: !uses.some(
      ({ access, place }) => isOwn(place) || (access !== 'read' && place === 'common'),
    ),
    isCommon: uses.map(({ place }) => !isOwn(place)),
    piece: pieces[i],
  }))
}

const countOf = ({ groups: [x, y, z] }: Dispatch): number => x * y * z

const isSame = (a: Operand, b: Operand): boolean => JSON.stringify(a) === JSON.stringify(b)
