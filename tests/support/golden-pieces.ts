import { singleStep } from '../../src/kernels/map/map.ts'
import type { Shape } from '../../src/util/shape.ts'
import text from '../golden/ops.json?raw'
import { type GoldenCase, valuesOf } from './golden.ts'

/** A case of tests/golden/ops.json. */
export interface OpCase extends GoldenCase {
  readonly op: string
  readonly attrs: Record<string, unknown>
}

/** One call of our op that gives some of a case's results. */
export interface Piece {
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

/** The calls of our ops that give all of a case's results. */
export function piecesOf({ op, attrs, inputs, outputs }: OpCase): Piece[] {
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

export const { cases: opCases } = JSON.parse(text) as { cases: OpCase[] }
