import { invariant, ShapeError } from '../../util/errors.ts'
import {
  countElements,
  formatShape,
  sameShape,
  stridesOf,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'
import { roundHalf } from '../half.ts'
import { converted } from '../map/map.ts'
import {
  defineOp,
  type GradientContext,
  type HostArray,
  type Op,
  type OpCall,
  type Value,
} from '../op.ts'
import { reshape } from '../reshape/reshape.ts'
import { applySteps, broadcastOffset, chainShape } from '../steps.ts'
import type { Strided } from '../strided.ts'
import { sumTo } from '../sum/sum.ts'
import { cases } from './cases.ts'
import {
  type MatmulAttrs,
  type MatmulForm,
  operandsOf,
  plain,
  problemOf,
  sizesOf,
  stridesInOrder,
} from './problem.ts'
import { kernels } from './variants.ts'

export { type MatmulAttrs, type MatmulForm, plain }

/**
 * The gradients of c = a b. One product each, with the other operand's form turned.
 *
 * An operand that was broadcast gets the sum over its batches; where b has no batch axes that sum is part of the product,
 * whose rows are then those of all batches.
 */
function gradient(context: GradientContext<MatmulAttrs>): (Value | undefined)[] {
  const { inputs, outputGradients, attrs } = context
  const [a, b] = inputs
  const [given] = outputGradients
  const { form } = attrs
  if (
    attrs.epilogue.length > 0 ||
    attrs.rowSums ||
    attrs.colSums ||
    attrs.a ||
    attrs.b ||
    attrs.store ||
    attrs.half
  ) {
    throw new Error('internal: matmul: gradients are taken before anything is linked in')
  }
  if (!given) return [undefined, undefined]
  // Products of f16 operands have f16 operands in backward too.
  const dy = converted(context, given, a.type.dtype === 'f16' ? 'f16' : 'f32')
  const product = (of: MatmulForm, left: Value, right: Value) =>
    context.emit(matmul, [left, right], plain(of))[0]
  const rows = (value: Value): Value => {
    const { shape } = value.type
    const flat = [countElements(shape.slice(0, -1)), shape[shape.length - 1]]
    return sameShape(flat, shape) ? value : context.emit(reshape, [value], { shape: flat })[0]
  }
  // c has the rows of a, unless b has batch axes too.
  const isShared = b.type.shape.length === 2 && form !== 'tn'
  const byA: Record<MatmulForm, () => Value> = {
    nn: () => product('nt', dy, b),
    nt: () => product('nn', dy, b),
    tn: () => product('nt', b, dy),
  }
  const byB: Record<MatmulForm, () => Value> = {
    nn: () => (isShared ? product('tn', rows(a), rows(dy)) : product('tn', a, dy)),
    nt: () => (isShared ? product('tn', rows(dy), rows(a)) : product('tn', dy, a)),
    tn: () => product('nn', a, dy),
  }
  return [byA[form], byB[form]].map((rule, n) =>
    context.needs(n) ? sumTo(context, rule(), inputs[n].type.shape) : undefined,
  )
}

/** The elements of a strided matrix, row after row. */
function packed(
  data: HostArray,
  start: number,
  [rows, columns]: readonly [number, number],
  [alongRows, alongColumns]: readonly [number, number],
): Float64Array {
  const out = new Float64Array(rows * columns)
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++)
      out[row * columns + column] = data[start + row * alongRows + column * alongColumns]
  return out
}

/**
 * The products [m, n] of the rows of left[m, k] and right[n, k], each summed in the order of k. Four sums run side by side: one addition
 * waits only for the last one of its sum (0.4 of the time of one after another, measured on the digits MLP).
 */
function productsOf(
  left: Float64Array,
  right: Float64Array,
  [m, n, k]: readonly [number, number, number],
): Float64Array {
  const out = new Float64Array(m * n)
  for (let row = 0; row < m; row++) {
    let column = 0
    for (; column + 4 <= n; column += 4) {
      let a = 0
      let b = 0
      let c = 0
      let d = 0
      let x = row * k
      let y = column * k
      for (const end = x + k; x < end; x++, y++) {
        const value = left[x]
        a += value * right[y]
        b += value * right[y + k]
        c += value * right[y + 2 * k]
        d += value * right[y + 3 * k]
      }
      const at = row * n + column
      out[at] = a
      out[at + 1] = b
      out[at + 2] = c
      out[at + 3] = d
    }
    for (; column < n; column++) {
      let total = 0
      for (let i = 0; i < k; i++) total += left[row * k + i] * right[column * k + i]
      out[row * n + column] = total
    }
  }
  return out
}

/** c = a b in one of three forms over broadcast batch axes, then a chain at the store. */
export const matmul: Op<MatmulAttrs> = defineOp<MatmulAttrs>({
  ...kernels,
  takesEpilogue: true,
  takesHalf: true,
  givesHalf: ({ outputs, attrs }) =>
    outputs.length === 1 && !attrs.store && outputs[0].shape[outputs[0].shape.length - 1] % 4 === 0,
  infer(inputs, attrs) {
    const { form, rowSums, colSums = false, store, half } = attrs
    const hasSums = rowSums || colSums
    const isFloat = ({ dtype }: TensorType) => dtype === 'f32' || dtype === 'f16'
    const other =
      inputs.find((input) => !isFloat(input)) ??
      (inputs[1].dtype === inputs[0].dtype ? undefined : inputs[1])
    if (other || (hasSums && form !== 'tn') || (rowSums && colSums)) {
      throw new ShapeError(
        'shape.unsupported',
        `matmul: expected two operands of f32 or f16, and sums of one operand only in form tn, got ${other?.dtype ?? 'f32'} in form ${form}. Convert the input, or omit sums.`,
      )
    }
    const [a, b] = operandsOf({ inputs, outputs: [], attrs })
    const { m, n, batch } = sizesOf(form, a.shape, b.shape)
    if (hasSums && batch.length > 0) {
      throw new ShapeError(
        'shape.unsupported',
        `matmul: sums need operands of 2 dimensions, got ${formatShape(a.shape)} and ${formatShape(b.shape)}. Omit sums.`,
      )
    }
    const c = [...batch, m, n]
    const operands = inputs.slice(2).map(({ shape }) => shape)
    const shape = chainShape('matmul epilogue', [c, ...operands])
    if (!sameShape(shape, c)) {
      throw new ShapeError(
        'shape.mismatch',
        `matmul: operands of the epilogue must broadcast to ${formatShape(c)}, got ${formatShape(shape)} with them. Reshape them.`,
      )
    }
    invariant(
      !half || (n % 4 === 0 && !hasSums && !store),
      () => `matmul: c[${c}] cannot be stored as f16`,
    )
    const output = store ? store.map((axis) => c[axis]) : c
    return [
      tensorType(output, half ? 'f16' : 'f32'),
      ...(rowSums ? [tensorType([m])] : colSums ? [tensorType([n])] : []),
    ]
  },
  gradient,
  flops: (call) => flopsOf(call),
  reference(values, call) {
    const { form, epilogue, rowSums, colSums, store } = call.attrs
    const [a, b] = operandsOf(call)
    const { m, k, n, batch } = sizesOf(form, a.shape, b.shape)
    const shape = [...batch, m, n]
    const strides = store ? stridesInOrder(shape, store) : stridesOf(shape)
    /** Where the last two axes of an operand begin in the batch of that index. */
    const startOf = (operand: Strided, index: number) => {
      let rest = index
      let at = operand.offset
      for (let axis = batch.length - 1; axis >= 0; axis--) {
        const own = axis - (shape.length - operand.shape.length)
        if (own >= 0 && operand.shape[own] !== 1) at += (rest % batch[axis]) * operand.strides[own]
        rest = Math.floor(rest / batch[axis])
      }
      return at
    }
    // Strides of an operand along its rows or columns of c, and along k.
    const [leadA, nextA] = a.strides.slice(-2)
    const [leadB, nextB] = b.strides.slice(-2)
    const [alongM, alongKA] = form === 'tn' ? [nextA, leadA] : [leadA, nextA]
    const [alongN, alongKB] = form === 'nt' ? [leadB, nextB] : [nextB, leadB]
    const c = new Float64Array(countElements(shape))
    const extras = values.slice(2)
    for (let index = 0; index < countElements(batch); index++) {
      // Contiguous along k: 0.6 of the time that strides take the CPU device (measured on the digits MLP).
      const left = packed(values[0], startOf(a, index), [m, k], [alongM, alongKA])
      const right = packed(values[1], startOf(b, index), [n, k], [alongN, alongKB])
      const products = productsOf(left, right, [m, n, k])
      for (let at = 0; at < products.length; at++) {
        const flat = index * m * n + at
        let target = 0
        let rest = flat
        for (let axis = shape.length - 1; axis >= 0; axis--) {
          target += (rest % shape[axis]) * strides[axis]
          rest = Math.floor(rest / shape[axis])
        }
        const others = extras.map(
          (data, i) => data[broadcastOffset(shape, call.inputs[2 + i].shape, flat)],
        )
        c[target] = applySteps(epilogue, [products[at], ...others])
      }
    }
    if (call.attrs.half) return [c.map(roundHalf)]
    if (colSums) {
      const sums = new Float64Array(n)
      for (let col = 0; col < n; col++) {
        for (let step = 0; step < k; step++) {
          sums[col] += values[1][b.offset + col * alongN + step * alongKB]
        }
      }
      return [c, sums]
    }
    if (!rowSums) return [c]
    const sums = new Float64Array(m)
    for (let row = 0; row < m; row++) {
      for (let step = 0; step < k; step++) {
        sums[row] += values[0][a.offset + row * alongM + step * alongKA]
      }
    }
    return [c, sums]
  },
  tolerance: {
    absolute: 1e-4,
    relative: 2e-6,
    because:
      'K products of standard normals added in f32 for K up to 784; terms cancel, so the error is absolute',
  },
  cases,
})

/** Floating-point operations of a call. */
export const flopsOf = (call: OpCall<MatmulAttrs>): number =>
  2 * countElements(call.outputs[0].shape) * problemOf(call).k
