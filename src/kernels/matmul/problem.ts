import { invariant } from '../../util/errors.ts'
import { broadcastShapes, type Shape, stridesOf, unify } from '../../util/shape.ts'
import type { OpCall } from '../op.ts'
import type { Step } from '../steps.ts'
import { contiguous, mergeAxes, reshapeStrided, type Strided } from '../strided.ts'

/** The last two axes of c = a b: `nn` (a[M,K] b[K,N]), `nt` (a[M,K] b[N,K]) or `tn` (a[K,M] b[K,N]). */
export type MatmulForm = 'nn' | 'nt' | 'tn'

/**
 * `form`: which operand is read transposed. Axes before the last two are batch axes, which broadcast.
 *
 * `epilogue`: a chain at the store; its input 0 is the accumulator, its inputs 1.. are the call's inputs 2.., which
 * broadcast to c. `rowSums` (tn without batch axes only): a second output [M], the sums of a over k, which is the bias
 * gradient where the product is a weight gradient. `colSums` instead: the same [N] of b, for weights stored [in, out].
 * `a`, `b`: how an operand lies in its input, where that is not the whole input in order. `store`: the axes of c in the
 * order in which the output has them. Both are set by rewrites that save copies.
 */
export interface MatmulAttrs {
  readonly form: MatmulForm
  readonly epilogue: readonly Step[]
  readonly rowSums: boolean
  readonly colSums?: boolean
  readonly a?: Strided
  readonly b?: Strided
  readonly store?: readonly number[]
  /** c as f16. Set by rewrites, where c has no second output and rows of a multiple of 4 elements. */
  readonly half?: boolean
}

/** A product and nothing else. */
export const plain = (form: MatmulForm): MatmulAttrs => ({ form, epilogue: [], rowSums: false })

/** How the kernels walk one tensor: rows are `lead` elements apart, neighbours in a row 1. */
export interface Layout {
  readonly lead: number
  readonly offset: number
  /** By axis of `MatmulProblem.batch`. */
  readonly strides: readonly number[]
}

export interface MatmulProblem {
  readonly form: MatmulForm
  readonly m: number
  readonly k: number
  readonly n: number
  /** Sizes of the batch axes after merging; empty where one product is all. */
  readonly batch: readonly number[]
  readonly layouts: { readonly a: Layout; readonly b: Layout; readonly c: Layout }
  /** The shape of c: batch axes, M, N. Where batch axes were folded into m, m is the product of all but the last. */
  readonly shape: Shape
  /** Chain at the store: input 0 is the accumulator, 1.. the operands, which broadcast to `shape`. */
  readonly epilogue: readonly Step[]
  readonly operandShapes: readonly Shape[]
  /** Which tensors are f16: both operands, each operand of the chain, c. */
  readonly halves: {
    readonly sides: boolean
    readonly operands: readonly boolean[]
    readonly c: boolean
  }
  /** True if a second output [M] takes the sums of a over k. */
  readonly rowSums: boolean
  /** True if a second output [N] takes the sums of b over k instead. */
  readonly colSums: boolean
}

/** The second output, if there is one: the operand that it sums, its length, its variable and index, and whose first tile makes it. */
export function sumsOf({ m, n, rowSums, colSums }: MatmulProblem) {
  if (rowSums)
    return { of: 'a', count: m, variable: 'row_sums', index: 'row', owner: 'col' } as const
  if (colSums)
    return { of: 'b', count: n, variable: 'col_sums', index: 'col', owner: 'row' } as const
  return undefined
}

const patterns: Record<MatmulForm, readonly [a: string, b: string]> = {
  nn: ['M K', 'K N'],
  nt: ['M K', 'N K'],
  tn: ['K M', 'K N'],
}

/** The sizes of a product and the broadcast batch axes. errors: `shape.mismatch`. */
export function sizesOf(
  form: MatmulForm,
  a: Shape,
  b: Shape,
): { m: number; k: number; n: number; batch: Shape } {
  const [patternA, patternB] = patterns[form]
  // Operands of fewer axes than two are named whole, so that the text shows what was given.
  const last = (shape: Shape) => (shape.length < 2 ? shape : shape.slice(-2))
  const operands = [
    ['a', patternA, last(a)],
    ['b', patternB, last(b)],
  ] as const
  const { M, K, N } = unify('matmul', operands, { K: 'inner dimensions' })
  return { m: M, k: K, n: N, batch: broadcastShapes('matmul', a.slice(0, -2), b.slice(0, -2)) }
}

/** How the operands of a call lie in its inputs. */
export const operandsOf = ({ inputs: [a, b], attrs }: OpCall<MatmulAttrs>): [Strided, Strided] => [
  attrs.a ?? contiguous(a.shape),
  attrs.b ?? contiguous(b.shape),
]

/** The stride between rows of the last two axes. */
function leadOf({ shape, strides }: Strided): number {
  const [rows, columns] = shape.slice(-2)
  const [lead, step] = strides.slice(-2)
  invariant(columns <= 1 || step === 1, () => 'matmul: neighbours in a row must be neighbours')
  return rows <= 1 ? columns : lead
}

/** Strides of an operand's batch axes along those of c. */
function batchStrides({ shape, strides }: Strided, batch: Shape): number[] {
  const added = batch.length - (shape.length - 2)
  return batch.map((_, axis) =>
    axis < added || shape[axis - added] === 1 ? 0 : strides[axis - added],
  )
}

/**
 * The sizes and layouts of a call in the form that kernels take.
 *
 * Where b has no batch axes the rows of all batches are rows of one product (a Linear layer over [.., K]).
 */
export function problemOf(call: OpCall<MatmulAttrs>): MatmulProblem {
  const { attrs } = call
  const { form, epilogue, rowSums, colSums = false, store } = attrs
  const [a, b] = operandsOf(call)
  const { m, k, n, batch } = sizesOf(form, a.shape, b.shape)
  const shape = [...batch, m, n]
  const common = {
    form,
    k,
    n,
    shape,
    epilogue,
    rowSums,
    colSums,
    operandShapes: call.inputs.slice(2).map((type) => type.shape),
    halves: {
      sides: call.inputs[0].dtype === 'f16',
      operands: call.inputs.slice(2).map(({ dtype }) => dtype === 'f16'),
      c: attrs.half ?? false,
    },
  }
  const isShared = b.shape.slice(0, -2).every((size) => size === 1)
  const rows = batch.reduce((product, size) => product * size, m)
  const flat =
    isShared && form !== 'tn' && !store && a.shape.length > 2
      ? reshapeStrided(a, [rows, k])
      : undefined
  if (flat && (k <= 1 || flat.strides[1] === 1)) {
    return {
      ...common,
      m: rows,
      batch: [],
      layouts: {
        a: { lead: leadOf(flat), offset: flat.offset, strides: [] },
        b: { lead: leadOf(b), offset: b.offset, strides: [] },
        c: { lead: n, offset: 0, strides: [] },
      },
    }
  }
  const stored = store ? stridesInOrder(shape, store) : stridesOf(shape)
  const merged = mergeAxes(batch, [
    batchStrides(a, batch),
    batchStrides(b, batch),
    stored.slice(0, -2),
  ])
  const [strideA, strideB, strideC] = merged.strides
  return {
    ...common,
    m,
    batch: merged.sizes,
    layouts: {
      a: { lead: leadOf(a), offset: a.offset, strides: strideA },
      b: { lead: leadOf(b), offset: b.offset, strides: strideB },
      c: { lead: m <= 1 ? n : stored[stored.length - 2], offset: 0, strides: strideC },
    },
  }
}

/** Strides by axis of a tensor of that shape which is stored with its axes in another order. */
export function stridesInOrder(shape: Shape, order: readonly number[]): number[] {
  const inMemory = stridesOf(order.map((axis) => shape[axis]))
  return shape.map((_, axis) => inMemory[order.indexOf(axis)])
}

/** How many products a call is. */
export const batchCount = ({ batch }: MatmulProblem): number =>
  batch.reduce((product, size) => product * size, 1)
