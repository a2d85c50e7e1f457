import { describe, expect, test } from 'vitest'
import { ops } from '../../src/kernels/index.ts'
import { singleStep } from '../../src/kernels/map/map.ts'
import type { HostArray, Op, OpCall, Variant } from '../../src/kernels/op.ts'
import type { Shape, TensorType } from '../../src/util/shape.ts'
import opsText from '../golden/ops.json?raw'
import {
  allowedDistance,
  type GoldenCase,
  largestDistance,
  typeOf,
  valuesOf,
} from '../support/golden.ts'
import { runOp, testRuntime } from '../support/run-op.ts'

// Every kernel in every kind of variant against PyTorch's float64 results (tests/golden/generate.py): ours must stay
// within 5 times the distance of PyTorch's own float32 results. Conv2d and pooling have a spec of their own.

const { pipelines, limits } = await testRuntime()

function opNamed(name: string): Op {
  const op = ops.find((candidate) => candidate.name === name)
  if (!op) throw new Error(`no op is called ${name}`)
  return op
}

const toFloats = (words: Uint32Array): Float32Array =>
  new Float32Array(words.buffer, words.byteOffset, words.length)

// --- ops -------------------------------------------------------------------------------------------------------------

interface OpCase extends GoldenCase {
  readonly op: string
  readonly attrs: Record<string, unknown>
}

/** One call of our op that gives some of a case's results. */
interface Piece {
  readonly op: string
  /** Names of the case's inputs or results, some under another shape; a number is a scalar tensor. */
  readonly inputs: readonly (string | { name: string; shape: Shape } | number)[]
  readonly attrs: unknown
  readonly scalars?: readonly number[]
  /** Names of the case's results, or null for an output that no result stands for. */
  readonly outputs: readonly (string | null)[]
}

const matmulAttrs = (form: string, more = {}) => ({ form, epilogue: [], rowSums: false, ...more })

/** The gradients by a and b of c = a b in each form, as matmuls of the same buffers. */
const matmulGradients: Record<
  string,
  [da: [string, string, string], db: [string, string, string]]
> = {
  nn: [
    ['nt', 'dy', 'b'],
    ['tn', 'a', 'dy'],
  ],
  nt: [
    ['nn', 'dy', 'b'],
    ['tn', 'dy', 'a'],
  ],
  tn: [
    ['nt', 'b', 'dy'],
    ['nn', 'a', 'dy'],
  ],
}

/** The axes along which `from` was broadcast to `to`, counted in `to`. */
const broadcastAxes = (from: Shape, to: Shape): number[] =>
  to.flatMap((size, axis) => {
    const own = axis - (to.length - from.length)
    return own < 0 || (from[own] === 1 && size !== 1) ? [axis] : []
  })

function piecesOf({ op, attrs, inputs, outputs }: OpCase): Piece[] {
  switch (op) {
    case 'linear':
      return [
        {
          op: 'matmul',
          inputs: ['x', 'w', 'b'],
          attrs: matmulAttrs('nt', { epilogue: singleStep('add', 2) }),
          outputs: ['y'],
        },
        { op: 'matmul', inputs: ['dy', 'w'], attrs: matmulAttrs('nn'), outputs: ['dx'] },
        {
          op: 'matmul',
          inputs: ['dy', 'x'],
          attrs: matmulAttrs('tn', { rowSums: true }),
          outputs: ['dw', 'db'],
        },
      ]
    case 'matmul': {
      const form = attrs['form'] as string
      const [da, db] = matmulGradients[form]
      return [
        { op: 'matmul', inputs: ['a', 'b'], attrs: matmulAttrs(form), outputs: ['y'] },
        { op: 'matmul', inputs: [da[1], da[2]], attrs: matmulAttrs(da[0]), outputs: ['da'] },
        { op: 'matmul', inputs: [db[1], db[2]], attrs: matmulAttrs(db[0]), outputs: ['db'] },
      ]
    }
    case 'relu':
      return [
        { op: 'map', inputs: ['x'], attrs: { steps: singleStep('relu', 1) }, outputs: ['y'] },
        {
          op: 'map',
          inputs: ['dy', 'y'],
          attrs: { steps: singleStep('reluGrad', 2) },
          outputs: ['dx'],
        },
      ]
    case 'add': {
      const { shape } = outputs['y']
      return [
        { op: 'map', inputs: ['a', 'b'], attrs: { steps: singleStep('add', 2) }, outputs: ['y'] },
        ...['a', 'b'].map((name) => ({
          op: 'sum',
          inputs: ['dy'],
          attrs: { axes: broadcastAxes(inputs[name].shape, shape), keepDims: true },
          outputs: [`d${name}`],
        })),
      ]
    }
    case 'sum': {
      const axes = attrs['axes'] as number[]
      const { shape } = inputs['x']
      const kept = shape.map((size, axis) => (axes.includes(axis) ? 1 : size))
      return [
        { op: 'sum', inputs: ['x'], attrs: { axes, keepDims: false }, outputs: ['y'] },
        {
          op: 'expand',
          inputs: [{ name: 'dy', shape: kept }],
          attrs: { shape },
          outputs: ['dx'],
        },
      ]
    }
    case 'crossEntropy': {
      const count = attrs['count'] as number
      const [dy] = valuesOf(inputs['dy'])
      const rows = ['logits', 'target']
      const counted = { count: { slot: 1 }, ignoreIndex: -100 }
      const scalars = [dy, count]
      return [
        { op: 'crossEntropy', inputs: rows, attrs: counted, scalars, outputs: ['y'] },
        {
          op: 'crossEntropyGrad',
          inputs: [...rows, dy],
          attrs: counted,
          scalars,
          outputs: ['dlogits'],
        },
        {
          op: 'crossEntropyWithGrad',
          inputs: rows,
          attrs: { ...counted, seed: { slot: 0 } },
          scalars,
          outputs: ['y', 'dlogits'],
        },
      ]
    }
    case 'topKCorrect':
      return [
        {
          op: 'topKCorrect',
          inputs: ['logits', 'target'],
          attrs: { k: attrs['k'], count: null },
          outputs: ['y'],
        },
      ]
    default:
      throw new Error(`golden op ${op}: no pieces are known for it`)
  }
}

const { cases: opCases } = JSON.parse(opsText) as { cases: OpCase[] }

/**
 * The variants to hold to PyTorch: of those whose names differ in their sizes alone ("direct-4x4", "direct-8x8") the
 * first and the preferred one, since each of them takes a second to compile and every-op.spec.ts runs them all.
 */
function kindsOfVariant(op: Op, call: OpCall): Variant[] {
  const kindOf = ({ name }: Variant) => name.split('-')[0]
  const preferred = op.preferred?.(call, limits)
  const possible = op.variants.filter((variant) => variant.when?.(call, limits) ?? true)
  return possible.filter(
    (variant, i) =>
      variant.name === preferred ||
      possible.findIndex((other) => kindOf(other) === kindOf(variant)) === i,
  )
}

/** The largest share of its allowed distance that any result of an op took. */
const shares = new Map<string, number>()

async function checkPiece(golden: OpCase, piece: Piece): Promise<string[]> {
  const op = opNamed(piece.op)
  const types: TensorType[] = []
  const contents: HostArray[] = []
  for (const input of piece.inputs) {
    if (typeof input === 'number') {
      types.push({ shape: [], dtype: 'f32' })
      contents.push(Float64Array.of(input))
      continue
    }
    const { name, shape } = typeof input === 'string' ? { name: input, shape: undefined } : input
    const tensor = golden.inputs[name] ?? golden.outputs[name]
    const type = typeOf(tensor)
    types.push({ ...type, shape: shape ?? type.shape })
    contents.push(valuesOf(tensor))
  }
  const call = { inputs: types, outputs: op.infer(types, piece.attrs), attrs: piece.attrs }
  const problems: string[] = []
  const variants = kindsOfVariant(op, call)
  // All together, so that they compile in parallel.
  await Promise.all(
    variants.flatMap((variant) => variant.lower(call).dispatches.map((d) => pipelines.get(d))),
  )
  for (const variant of variants) {
    const run = await runOp(op, variant, call, contents, piece.scalars)
    if (!run.guardsIntact || !run.inputsIntact)
      problems.push(`${op.name} ${variant.name}: stray write`)
    piece.outputs.forEach((name, i) => {
      if (name === null) return
      const result = golden.outputs[name]
      const expected = valuesOf(result)
      const got = largestDistance(toFloats(run.outputs[i]), expected)
      const allowed = allowedDistance(result.distance, expected)
      const share = got === 0 ? 0 : got / allowed
      shares.set(op.name, Math.max(shares.get(op.name) ?? 0, share))
      if (!(got <= allowed)) {
        problems.push(
          `${name} by ${op.name} ${variant.name}: ${got} from float64, allowed ${allowed} (PyTorch's float32: ${result.distance})`,
        )
      }
    })
  }
  return problems
}

describe('ops against PyTorch', () => {
  for (const golden of opCases) {
    test(golden.name, { timeout: 180_000 }, async () => {
      const pieces = piecesOf(golden)
      const covered = new Set(pieces.flatMap(({ outputs }) => outputs))
      expect(
        Object.keys(golden.outputs).filter((name) => !covered.has(name)),
        'results that nothing computes',
      ).toEqual([])
      const problems: string[] = []
      for (const piece of pieces) problems.push(...(await checkPiece(golden, piece)))
      expect(problems).toEqual([])
    })
  }

  test('the distances, as shares of what is allowed', () => {
    console.log([...shares].map(([name, share]) => `${name} ${share.toFixed(2)}`).join(', '))
    expect(shares.size).toBeGreaterThan(0)
  })
})
