import { type Shape, tensorType } from '../../util/shape.ts'
import type { Case } from '../op.ts'
import type { Step } from '../steps.ts'
import { type MatmulAttrs, type MatmulForm, plain } from './problem.ts'

const testCase = (
  name: string,
  form: MatmulForm,
  [m, k, n]: readonly [number, number, number],
  more: {
    operands?: Shape[]
    epilogue?: Step[]
    rowSums?: boolean
    colSums?: boolean
    half?: boolean
    fill?: 'normal' | 'huge' | 'ties'
  } = {},
) => {
  const shapes: Record<MatmulForm, [Shape, Shape]> = {
    nn: [
      [m, k],
      [k, n],
    ],
    nt: [
      [m, k],
      [n, k],
    ],
    tn: [
      [k, m],
      [k, n],
    ],
  }
  return {
    name: `${form} ${m}x${k}x${n}${name && ` ${name}`}`,
    inputs: [...shapes[form], ...(more.operands ?? [])].map((shape) => tensorType(shape)),
    attrs: {
      form,
      epilogue: more.epilogue ?? [],
      rowSums: more.rowSums ?? false,
      ...(more.colSums && { colSums: true }),
      ...(more.half && { half: true }),
    },
    fill: more.fill,
  }
}

/** A product of f16 operands; those of the chain are f16 too where they are no vectors. */
const halfCase = (...args: Parameters<typeof testCase>) => {
  const single = testCase(...args)
  const inputs = single.inputs.map(({ shape }) =>
    tensorType(shape, shape.length === 2 ? 'f16' : 'f32'),
  )
  return { ...single, name: `f16 ${single.name}`, inputs }
}

/** The same product for each batch. */
const batchCase = (
  name: string,
  form: MatmulForm,
  sizes: readonly [number, number, number],
  batchA: Shape,
  batchB: Shape,
  more: Parameters<typeof testCase>[3] = {},
) => {
  const single = testCase(name, form, sizes, more)
  const [a, b, ...operands] = single.inputs
  return {
    ...single,
    name: `[${batchA}] ${form} [${batchB}] ${sizes.join('x')} ${name}`.trim(),
    inputs: [tensorType([...batchA, ...a.shape]), tensorType([...batchB, ...b.shape]), ...operands],
  }
}

const addBias: Step[] = [{ fn: 'add', args: [{ input: 0 }, { input: 1 }] }]
const addBiasRelu: Step[] = [...addBias, { fn: 'relu', args: [{ step: 0 }] }]

const addTwo: Step[] = [
  { fn: 'add', args: [{ input: 0 }, { input: 1 }] },
  { fn: 'add', args: [{ step: 0 }, { input: 2 }] },
]

const addThree: Step[] = [...addTwo, { fn: 'add', args: [{ step: 1 }, { input: 3 }] }]

/** Every form over sizes that tiles fit and do not, batches, chains, sums, f16, and operands that lie otherwise. */
export const cases: readonly Case<MatmulAttrs>[] = [
  testCase('one element', 'nn', [1, 1, 1]),
  testCase('', 'nn', [3, 5, 7]),
  testCase('', 'nt', [3, 5, 7]),
  testCase('', 'tn', [3, 5, 7]),
  testCase('', 'nn', [33, 20, 20]),
  testCase('', 'nt', [33, 20, 20]),
  testCase('', 'tn', [20, 20, 33]),
  testCase('', 'nn', [102, 20, 118]),
  testCase('', 'nt', [102, 19, 118]),
  testCase('', 'tn', [102, 20, 118]),
  testCase('whole tiles', 'nn', [64, 64, 128]),
  testCase('long k', 'nt', [4, 1000, 6]),
  testCase('long k', 'tn', [5, 515, 8], { rowSums: true }),
  testCase('the hidden layer', 'nt', [16, 784, 256], {
    operands: [[256]],
    epilogue: addBiasRelu,
  }),
  testCase('the head', 'nt', [64, 256, 10], { operands: [[10]], epilogue: addBias }),
  testCase('with row sums', 'tn', [10, 64, 256], { rowSums: true }),
  testCase('with row sums', 'tn', [37, 9, 21], { rowSums: true }),
  testCase('scaled', 'tn', [12, 8, 20], {
    rowSums: true,
    operands: [[], [12, 1], [12, 20]],
    epilogue: [
      { fn: 'mul', args: [{ input: 0 }, { input: 1 }] },
      { fn: 'add', args: [{ step: 0 }, { input: 2 }] },
      { fn: 'reluGrad', args: [{ step: 1 }, { input: 3 }] },
    ],
  }),
  testCase('huge', 'nn', [17, 40, 9], { fill: 'huge' }),
  testCase('no k', 'nn', [5, 0, 6], { operands: [[6]], epilogue: addBias }),
  testCase('no k', 'tn', [5, 0, 6], { rowSums: true }),
  testCase('with column sums', 'tn', [64, 37, 30], { colSums: true }),
  testCase('with column sums, long k', 'tn', [8, 515, 65], { colSums: true }),
  testCase('column sums of nothing', 'tn', [5, 0, 6], { colSums: true }),
  // More columns than one workgroup of the widest variants makes, with a rest.
  testCase('wide', 'nn', [7, 21, 300], { operands: [[300]], epilogue: addBias }),
  testCase('wide', 'tn', [7, 22, 300], { rowSums: true }),
  testCase('wide', 'tn', [7, 9, 301], { colSums: true }),
  testCase('wide, rows by fours', 'tn', [8, 22, 300], { rowSums: true }),
  testCase('no rows', 'nt', [0, 4, 6]),
  testCase('no columns', 'tn', [5, 4, 0], { rowSums: true }),
  batchCase('', 'nn', [3, 5, 7], [3], [3]),
  batchCase('', 'nt', [3, 12, 10], [2, 3], [2, 3]),
  batchCase('', 'tn', [8, 6, 12], [4], [4]),
  batchCase('large enough for every tile', 'nn', [33, 12, 34], [2], [2]),
  batchCase('broadcast', 'nn', [3, 4, 12], [2, 1], [1, 3]),
  batchCase('broadcast', 'tn', [3, 4, 12], [3, 1], [2]),
  batchCase('one a for all', 'nt', [3, 5, 9], [], [4]),
  batchCase('one b for all', 'nn', [2, 8, 3], [2, 3], []),
  batchCase('one b for all', 'nt', [2, 8, 3], [2, 3], []),
  batchCase('one b for all', 'tn', [3, 8, 12], [5], []),
  batchCase('long k', 'nt', [3, 300, 8], [2], [2]),
  batchCase('a bias for all, one a batch, one of its own', 'nn', [3, 4, 12], [2, 3], [2, 3], {
    operands: [[12], [3, 1, 1], [3, 1]],
    epilogue: addThree,
  }),
  batchCase('folded, with a bias and one a row', 'nt', [3, 4, 3], [2, 3], [], {
    operands: [[3], [2, 1, 1, 1], [3, 3]],
    epilogue: addThree,
  }),
  batchCase('wide', 'nn', [7, 13, 293], [2], [2]),
  batchCase('huge', 'nn', [5, 9, 6], [3], [3], { fill: 'huge' }),
  halfCase('', 'nn', [3, 5, 7]),
  halfCase('', 'nt', [33, 20, 20]),
  halfCase('', 'tn', [20, 70, 33], { rowSums: true }),
  halfCase('stored as f16', 'nn', [21, 18, 36], {
    operands: [[36], [21, 36]],
    epilogue: addTwo,
    half: true,
  }),
  halfCase('huge', 'nt', [5, 64, 12], { fill: 'huge', half: true }),
  halfCase('wide', 'nt', [7, 20, 300], { half: true }),
  halfCase('wide, rows by fours', 'tn', [8, 10, 300]),
  {
    ...batchCase('of f16 to f16', 'nt', [3, 6, 4], [2, 3], [2, 3], { half: true }),
    inputs: [tensorType([2, 3, 3, 6], 'f16'), tensorType([2, 3, 4, 6], 'f16')],
  },
  batchCase('no batches', 'nn', [5, 9, 6], [0], [0]),
  batchCase('no k', 'tn', [4, 0, 3], [2], [2]),
  {
    name: 'operands and result with axes in another order',
    // q, k as [B, T, H, D]: the scores of each head, stored as [B, T, H, T].
    inputs: [tensorType([2, 3, 3, 4]), tensorType([2, 3, 3, 4])],
    attrs: {
      ...plain('nt'),
      a: { shape: [2, 3, 3, 4], strides: [36, 4, 12, 1], offset: 0 },
      b: { shape: [2, 3, 3, 4], strides: [36, 4, 12, 1], offset: 0 },
      store: [0, 2, 1, 3],
    },
  },
  {
    name: 'an operand that is part of its input',
    inputs: [tensorType([3, 30]), tensorType([30, 12])],
    attrs: {
      ...plain('nn'),
      a: { shape: [3, 9], strides: [30, 1], offset: 11 },
      b: { shape: [9, 12], strides: [24, 1], offset: 4 },
    },
  },
]
