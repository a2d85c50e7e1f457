import { invariant } from '../../util/errors.ts'
import { countElements, type TensorType, tensorType } from '../../util/shape.ts'
import { eachElement } from '../elements.ts'
import { roundHalf } from '../half.ts'
import { halfWords } from '../half-bindings.ts'
import { defineOp, type Lowering, type Op, type OpCall } from '../op.ts'
import { reads, writes } from '../shader.ts'

/** Tensors of one dispatch: with their copies they take all bindings that every adapter has. */
export const maxCopies = 4

const isInFours = ({ shape }: TensorType) => countElements(shape) % 4 === 0

/** One invocation makes a word of one copy, or two where it takes four elements; copies follow each other. */
function lower({ inputs }: OpCall<object>, isWide: boolean): Lowering {
  const counts = inputs.map(({ shape }) => countElements(shape))
  const invocations = counts.map((count) => (isWide ? count / 4 : halfWords(count)))
  const total = invocations.reduce((sum, own) => sum + own, 0)
  let first = 0
  const branches = inputs.flatMap((_, n) => {
    if (counts[n] === 0) return []
    const at = first === 0 ? 'i' : `i - ${first}u`
    first += invocations[n]
    const store = isWide
      ? `y${n}[at] = x${n}[at];`
      : `y${n}[at] = pack_half(x${n}[at * 2u], x${n}[min(at * 2u + 1u, ${counts[n] - 1}u)]);`
    return [`if (i < ${first}u) { let at = ${at}; ${store} }`]
  })
  return {
    dispatches: eachElement({
      label: `half copies ${counts.join('+')}`,
      count: total,
      bindings: [
        ...inputs.map((_, n) => reads(`x${n}`, { in: n }, isWide ? 'vec4<f32>' : 'f32')),
        ...inputs.map((_, n) => writes(`y${n}`, { out: n }, isWide ? 'vec4<f16>' : 'f16')),
      ],
      main: [branches.join(' else ')],
    }),
  }
}

/** Copies of up to four tensors as f16, bit for bit those of `map`, in one dispatch. Made by rewrites, after gradients are taken. */
export const halfCopies: Op<object> = defineOp<object>({
  name: 'halfCopies',
  infer(inputs) {
    invariant(
      inputs.length <= maxCopies && inputs.every(({ dtype }) => dtype === 'f32'),
      () => `halfCopies: expected up to ${maxCopies} tensors of f32, got ${inputs.length}`,
    )
    return inputs.map(({ shape }) => tensorType(shape, 'f16'))
  },
  variants: [
    { name: 'naive', lower: (call) => lower(call, false) },
    {
      name: 'wide',
      when: ({ inputs }) => inputs.every(isInFours),
      lower: (call) => lower(call, true),
    },
  ],
  reference: (inputs) => inputs.map((values) => Float64Array.from(values, roundHalf)),
  tolerance: { absolute: 0, relative: 0, because: 'rounding to f16 is exact' },
  cases: [
    { name: 'one element', inputs: [tensorType([1])], attrs: {} },
    { name: '3x7 and 5', inputs: [tensorType([3, 7]), tensorType([5])], attrs: {} },
    {
      name: 'four, of 4, none, 72 and 12, huge',
      inputs: [[4], [0], [9, 8], [12]].map((shape) => tensorType(shape)),
      attrs: {},
      fill: 'huge',
    },
  ],
})
