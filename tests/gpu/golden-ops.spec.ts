import { describe, expect, test } from 'vitest'
import { ops } from '../../src/kernels/index.ts'
import type { HostArray, Op, OpCall, Variant } from '../../src/kernels/op.ts'
import type { TensorType } from '../../src/util/shape.ts'
import { allowedDistance, largestDistance, typeOf, valuesOf } from '../support/golden.ts'
import { type OpCase, opCases, type Piece, piecesOf } from '../support/golden-pieces.ts'
import { noteShare, seedCases, titleOf } from '../support/golden-seeds.ts'
import { runOp, testRuntime } from '../support/run-op.ts'

// Every kernel in every kind of variant against PyTorch's float64 results (tests/golden/generate.py): ours must stay
// within 8 times the distance of PyTorch's own float32 results. Conv2d and pooling have their own spec.

const { pipelines, limits } = await testRuntime()

function opNamed(name: string): Op {
  const op = ops.find((candidate) => candidate.name === name)
  if (!op) throw new Error(`no op is called ${name}`)
  return op
}

const toFloats = (words: Uint32Array): Float32Array =>
  new Float32Array(words.buffer, words.byteOffset, words.length)

// --- ops -------------------------------------------------------------------------------------------------------------

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
      noteShare(got, allowed)
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
  for (const golden of [...opCases, ...seedCases<OpCase>('ops')]) {
    test(titleOf(golden), { timeout: 180_000 }, async () => {
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
