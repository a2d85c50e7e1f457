import { ShapeError } from '../../util/errors.ts'
import { formatShape, type Shape, type TensorType, tensorType } from '../../util/shape.ts'
import { eachFloat } from '../elements.ts'
import { type Case, type Dispatch, defineOp, type HostArray, type Op, type OpCall } from '../op.ts'
import { adding, rowKernel } from '../rows.ts'
import { f32Literal, reads, updates, writes } from '../shader.ts'
import { naiveOrTree, treeThreads } from '../totals.ts'
import columnsBody from './columns.wgsl?raw'

export interface PowerIterationAttrs {
  /** At least 1. */
  readonly iterations: number
  /** The least length that a vector is divided by. */
  readonly eps: number
}

function sizesOf(inputs: readonly TensorType[]): { H: number; W: number } {
  const [{ shape: matrix }, { shape: u }, { shape: v }] = inputs
  const fits = matrix.length === 2 && u.length === 1 && v.length === 1
  if (!fits || u[0] !== matrix[0] || v[0] !== matrix[1]) {
    throw new ShapeError(
      'shape.mismatch',
      `powerIteration: expected matrix [H, W], u [H] and v [W], got ${[matrix, u, v].map(formatShape).join(', ')}. Check the dimension of the outputs.`,
    )
  }
  return { H: matrix[0], W: matrix[1] }
}

function lower({ inputs, attrs }: OpCall<PowerIterationAttrs>, threads: number) {
  const { H, W } = sizesOf(inputs)
  const { iterations, eps } = attrs
  const columns = eachFloat({
    label: `powerIteration columns ${H}x${W}`,
    bindings: [reads('matrix', { in: 0 }), reads('u', { in: 1 })],
    output: { name: 'product', type: tensorType([W]), operand: { scratch: 0 } },
    constants: { H, W },
    functions: columnsBody,
  })
  const rows = rowKernel({
    label: `powerIteration rows ${H}x${W}`,
    rows: { outer: H, reduced: W, inner: 1 },
    lanes: threads,
    bindings: [
      reads('matrix', { in: 0 }),
      reads('v', { in: 2 }),
      writes('product', { scratch: 1 }),
    ],
    reductions: [{ name: 'total', join: adding, of: 'matrix[at] * v[c]' }],
    once: ['product[row] = total;'],
  })
  /** The product in a scratch tensor becomes vector `at` (0: u, 1: v) and, at last, its copy. */
  const normalize = (at: 0 | 1, N: number, isLast: boolean) =>
    rowKernel({
      label: `powerIteration normalize ${N}`,
      rows: { outer: 1, reduced: N, inner: 1 },
      lanes: threads,
      bindings: [
        reads('product', { scratch: 1 - at }),
        updates('kept', { in: 1 + at }),
        ...(isLast ? [writes('copy', { out: at })] : []),
      ],
      reductions: [
        {
          name: 'squares',
          join: adding,
          of: 'product[at] * product[at]',
          after: [`let length = max(sqrt(squares), ${f32Literal(eps)});`],
        },
      ],
      each: [
        'let value = product[at] / length;',
        'kept[at] = value;',
        ...(isLast ? ['copy[at] = value;'] : []),
      ],
    })
  const dispatches = Array.from({ length: iterations }, (_, n): Dispatch[] => {
    const isLast = n === iterations - 1
    return [...columns, ...normalize(1, W, isLast), ...rows, ...normalize(0, H, isLast)]
  }).flat()
  return { dispatches, scratch: [tensorType([W]), tensorType([H])] }
}

/** Overwrites `target` by `product` over its length. */
function normalizeInto(target: HostArray, product: Float64Array, eps: number): void {
  const length = Math.max(Math.sqrt(product.reduce((sum, x) => sum + x * x, 0)), eps)
  for (let i = 0; i < product.length; i++) target[i] = product[i] / length
}

const sample = (
  name: string,
  [H, W]: Shape,
  attrs: Partial<PowerIterationAttrs> = {},
  fill?: Case['fill'],
): Case<PowerIterationAttrs> => ({
  name,
  inputs: [tensorType([H, W]), tensorType([H]), tensorType([W])],
  attrs: { iterations: 1, eps: 1e-12, ...attrs },
  fill,
})

/**
 * Moves u and v towards the matrix's first singular vectors, `iterations` times: v = normalize(Mᵀ u), u = normalize(M v); in place, and as
 * outputs u and v that later calls do not change. They are constants: no gradient passes.
 *
 * shape: M [H, W], u [H], v [W] -> u [H], v [W]
 * cost: four dispatches an iteration; M is read twice.
 * source: torch.nn.utils.spectral_norm; Miyato et al., arXiv 1802.05957.
 */
export const powerIteration: Op<PowerIterationAttrs> = defineOp<PowerIterationAttrs>({
  name: 'powerIteration',
  infer(inputs) {
    const { H, W } = sizesOf(inputs)
    return [tensorType([H]), tensorType([W])]
  },
  updates: [1, 2],
  ...naiveOrTree(
    (call) => lower(call, 1),
    (call) => lower(call, treeThreads),
  ),
  gradient: () => [],
  reference([matrix, u, v], { inputs, attrs: { iterations, eps } }) {
    const { H, W } = sizesOf(inputs)
    for (let n = 0; n < iterations; n++) {
      const columns = new Float64Array(W)
      for (let i = 0; i < H; i++) {
        for (let j = 0; j < W; j++) columns[j] += matrix[i * W + j] * u[i]
      }
      normalizeInto(v, columns, eps)
      const rows = new Float64Array(H)
      for (let i = 0; i < H; i++) {
        for (let j = 0; j < W; j++) rows[i] += matrix[i * W + j] * v[j]
      }
      normalizeInto(u, rows, eps)
    }
    return [u.slice(), v.slice()]
  },
  tolerance: {
    absolute: 4e-6,
    relative: 1e-5,
    because: 'elements of unit vectors from f32 sums of up to 700 terms',
  },
  cases: [
    sample('one element', [1, 1]),
    sample('5x7, three iterations', [5, 7], { iterations: 3 }),
    sample('one row', [1, 9]),
    sample('one column', [300, 1], { iterations: 2 }),
    sample('more than a workgroup, 67x513', [67, 513]),
    sample('700 rows', [700, 33]),
    sample('a large eps', [6, 4], { eps: 50 }),
    sample('no rows', [0, 4]),
    sample('ties', [8, 6], {}, 'ties'),
    sample('huge', [17, 9], {}, 'huge'),
  ],
})
